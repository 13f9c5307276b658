"""Every error a user can meet, with its HTTP status and stable code.

    PacelineError                    500 internal_error
    ├── RequestError                 400 invalid_value          a field of a request is wrong
    │   ├── UnsupportedFieldError    400 unsupported_parameter  the field would change the answer and is not served
    │   ├── ContextLengthError       400 context_length_exceeded
    │   ├── BodyTooLargeError        413 request_too_large
    │   └── UnknownModelError        404 model_not_found
    ├── AuthenticationError          401 invalid_api_key
    ├── OverloadedError              429 overloaded             with Retry-After
    │   └── RateLimitError           429 rate_limit_exceeded    with Retry-After: the key's allowance is used up
    ├── RequestTimeoutError          504 request_timeout        not finished within --request-timeout
    ├── UnavailableError             503 unavailable            with Retry-After: loading, draining, engine down
    ├── CheckpointError              (start-up)                 a model file is missing, damaged or unknown
    └── ConfigError                  (start-up)                 an option is wrong

Input problems name the field, the limit and the value. Broken promises of our own are asserts, not errors.
"""


class PacelineError(Exception):
    """Root of the tree. `status` is the HTTP status, `code` the stable machine-readable name."""

    status = 500
    code = "internal_error"
    error_type = "server_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RequestError(PacelineError):
    """A request can't be served as asked; `param` names the field as the user wrote it: ``messages[1].content``."""

    status = 400
    code = "invalid_value"
    error_type = "invalid_request_error"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class UnsupportedFieldError(RequestError):
    """The field would change the answer and this server does not implement it."""

    code = "unsupported_parameter"


class ContextLengthError(RequestError):
    """prompt + max_tokens does not fit the effective context."""

    code = "context_length_exceeded"


class BodyTooLargeError(RequestError):
    """The body is larger than the server reads."""

    status = 413
    code = "request_too_large"


class UnknownModelError(RequestError):
    """The named model is not served here."""

    status = 404
    code = "model_not_found"


class AuthenticationError(PacelineError):
    """The API key is missing or wrong."""

    status = 401
    code = "invalid_api_key"
    error_type = "authentication_error"


class OverloadedError(PacelineError):
    """The queue is full; try again after `retry_after_s` seconds."""

    status = 429
    code = "overloaded"
    error_type = "overloaded_error"

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateLimitError(OverloadedError):
    """The key has used its requests or tokens of this minute; try again after `retry_after_s` seconds."""

    code = "rate_limit_exceeded"
    error_type = "rate_limit_error"


class RequestTimeoutError(PacelineError):
    """The request took longer than the server allows; its sequences are cancelled."""

    status = 504
    code = "request_timeout"
    error_type = "timeout_error"


class UnavailableError(PacelineError):
    """The engine is loading, draining or down; try again after `retry_after_s` seconds."""

    status = 503
    code = "unavailable"
    error_type = "unavailable_error"

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class CheckpointError(PacelineError):
    """A model file is missing, damaged, hostile or of an unknown kind; the message names the file and the remedy."""

    code = "bad_checkpoint"


class ConfigError(PacelineError):
    """An option is wrong; the message names the option, the limit and the value."""

    code = "bad_config"
