"""The log line of a finished request: what an operator asks about it, and nothing of what was said in it.

Prompts, answers and keys are never logged: a key is named by its position in the configuration.
"""

import logging

from paceline.server.record import RequestRecord

logger = logging.getLogger(__name__)


def log_request(record: RequestRecord, now_s: float) -> None:
    """Log one line for a request that has ended."""
    if logger.isEnabledFor(logging.INFO):
        logger.info("request", extra={"fields": request_fields(record, now_s)})


def request_fields(record: RequestRecord, now_s: float) -> dict[str, object]:
    """The fields of the line. Token counts, TTFT and endings only where something was to be generated."""
    fields: dict[str, object] = {
        "request_id": record.request_id,
        "method": record.method,
        "path": record.path,
        "status": record.status,
        "duration_s": round(now_s - record.arrival_s, 4),
    }
    if record.key_position is not None:
        fields["key"] = record.key_position
    if record.is_client_gone:
        fields["client_gone"] = True
    session = record.session
    if session is not None:
        usage, timing = session.usage, session.timing
        fields |= {
            "model": record.model,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "ttft_s": None if timing.ttft_s is None else round(timing.ttft_s, 4),
            "finish_reasons": timing.finish_reasons,
        }
        if timing.error_code is not None:
            fields["error"] = timing.error_code
    return fields
