"""How text is split before bytes are merged: the rule behind each name in `tokenizer.ggml.pre`.

A rule is a list of regular expressions applied one after the other; each cuts the pieces left by those before it into
its matches and what lies between. Names and expressions as in the models' published tokenizers.
"""

from tokenizers import Regex, pre_tokenizers

from paceline.errors import CheckpointError

GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ONE_DIGIT = r"\p{N}"
THREE_DIGIT_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ONE_DIGIT_WORDS = THREE_DIGIT_WORDS.replace("{1,3}", "")

# "default" is what converters write for a byte-level model they do not recognise.
SPLIT_RULES: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "gpt-2": (GPT2_WORDS,),
    "smollm": (ONE_DIGIT, GPT2_WORDS),
    "starcoder": (ONE_DIGIT, GPT2_WORDS),
    "llama-bpe": (THREE_DIGIT_WORDS,),
    "llama3": (THREE_DIGIT_WORDS,),
    "llama-v3": (THREE_DIGIT_WORDS,),
    "qwen2": (ONE_DIGIT_WORDS,),
}
# Whole words of the vocabulary win over merges in these (their vocabularies hold words that no merge reaches).
WHOLE_WORD_RULES = frozenset({"llama-bpe", "llama3", "llama-v3"})
# Models under these names expect a beginning token even where the file does not say so.
BOS_RULES = WHOLE_WORD_RULES


def byte_level_splitter(name: str) -> pre_tokenizers.PreTokenizer:
    """The splitter of a rule, ending in GPT-2's spelling of bytes. Raises CheckpointError for an unknown name."""
    expressions = SPLIT_RULES.get(name)
    if expressions is None:
        raise CheckpointError(
            f"tokenizer.ggml.pre is {name!r}, which is not a known pre-tokenizer (known: {', '.join(SPLIT_RULES)}); "
            "convert the model from its tokenizer.json, or serve the safetensors checkpoint"
        )
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    splits = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]
    return pre_tokenizers.Sequence([*splits, spell])
