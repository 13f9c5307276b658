"""Tests press Ctrl-C on programs they start. A shell's background job ignores it, and what it starts would too."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
