"""Between text and token ids: tokenizer, chat template, incremental text, stop strings."""
