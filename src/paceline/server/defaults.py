"""Sampling fields that a request leaves out: the model's own default, else the built-in one."""

from msgspec.structs import replace

from paceline.server.body import Body
from paceline.text.defaults import SamplingDefaults


def with_defaults(body: Body, defaults: SamplingDefaults) -> Body:
    """The body with the model's defaults in place of what is absent."""
    absent = {name: value for name, value in defaults.given().items() if getattr(body, name) is None}
    return replace(body, **absent) if absent else body


def defaults_line(defaults: SamplingDefaults) -> str:
    """The model's defaults in one line, for the start-up summary."""
    given = ", ".join(f"{name} {value:g}" for name, value in defaults.given().items())
    return f"{given} (the model's; --generation-config none for the built-in ones)" if given else "built in"
