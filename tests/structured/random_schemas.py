"""Random JSON schemas of the kinds people write: nesting, enums, patterns, unions, references, recursion, Unicode."""

from collections.abc import Callable
from random import Random
from typing import Any

Schema = dict[str, Any]

KEYS = [
    "name",
    "id",
    "größe",
    "日本",
    "two words",
    'quo"te',
    "emoji😀",
    "tab\tkey",
    "back\\slash",
    "x",
    "items",
]
WORDS = ["red", "green", "dark blue", "naïve", "東京", 'say "hi"', "a/b", "🚀", "", "line\nbreak"]
# Read alike by Python's re.search and by the compiler.
PATTERNS = ["^[a-z]{2,6}$", "cat|dog", "^cat|dog$", r"^\d{3}-\d{4}$", "[äöü]+", r"\S", "^(foo|bar)+$", "^a.b$",
            "^[A-Z][a-z]*( [A-Z][a-z]*)?$", "é+"]  # fmt: skip
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "email"]


def random_schema(random: Random) -> Schema:
    """A schema with at most three levels of its own, and definitions when it refers to any."""
    writer = SchemaWriter(random)
    schema = writer.object(0) if random.random() < 0.7 else writer.any(0)
    if writer.definitions:
        schema = schema | {"$defs": writer.definitions}
    return schema


class SchemaWriter:
    """Writes one schema; collects the definitions that it refers to."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.definitions: dict[str, Schema] = {}

    def any(self, depth: int) -> Schema:
        leaves: list[Callable[[int], Schema]] = [self.string, self.integer, self.number, self.constant, self.simple]
        nested = [self.object, self.array, self.union, self.reference]
        return self.random.choice(leaves if depth >= 3 else leaves + nested)(depth)

    def object(self, depth: int) -> Schema:
        keys = self.random.sample(KEYS, self.random.randint(1, 4))
        schema: Schema = {"type": "object", "properties": {key: self.any(depth + 1) for key in keys}}
        schema["required"] = [key for key in keys if self.random.random() < 0.7]
        schema["additionalProperties"] = False
        if self.random.random() < 0.1:
            schema["additionalProperties"] = self.string(depth)
        if self.random.random() < 0.1:
            schema["patternProperties"] = {"^p_[a-z]{1,3}$": self.integer(depth)}
        return schema

    def array(self, depth: int) -> Schema:
        least = self.random.randint(0, 2)
        schema: Schema = {"type": "array", "minItems": least, "maxItems": least + self.random.randint(0, 3)}
        if self.random.random() < 0.2:
            schema["prefixItems"] = [self.any(depth + 1), self.any(depth + 1)]
        return schema | {"items": self.any(depth + 1)}

    def union(self, depth: int) -> Schema:
        if self.random.random() < 0.5:
            return {"anyOf": [self.any(depth + 1) for _ in range(self.random.randint(1, 3))]}
        return {"oneOf": [self.string(depth), self.integer(depth), {"type": "null"}]}

    def reference(self, depth: int) -> Schema:
        name = self.random.choice(["node", "größe/1", "leaf"])
        if name not in self.definitions:
            self.definitions[name] = {}  # before its inside, which may refer to it
            inside = self.object(2)
            if name == "node":
                inside["properties"]["next"] = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}
            self.definitions[name] = inside
        return {"$ref": "#/$defs/" + name.replace("/", "~1")}

    def string(self, depth: int) -> Schema:
        draw = self.random.random()
        if draw < 0.4:
            return {"type": "string", "pattern": self.random.choice(PATTERNS), "maxLength": 24}
        if draw < 0.55:
            return {"type": "string", "format": self.random.choice(FORMATS)}
        least = self.random.randint(0, 3)
        return {"type": "string", "minLength": least, "maxLength": least + self.random.randint(0, 12)}

    def integer(self, depth: int) -> Schema:
        low = self.random.choice([-(10**20), -1000, -3, 0, 7])
        schema: Schema = {"type": "integer", self.random.choice(["minimum", "exclusiveMinimum"]): low}
        if self.random.random() < 0.7:
            span = self.random.choice([5, 1000, 20_000_000_000])
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = max(low, -1000) + span
        return schema | ({"multipleOf": 5} if self.random.random() < 0.2 else {})

    def number(self, depth: int) -> Schema:
        low = self.random.choice([-1e6, -0.5, 0.0, 3.25])
        return {"type": "number", "minimum": low, "exclusiveMaximum": low + self.random.choice([0.5, 10.0, 1e9])}

    def constant(self, depth: int) -> Schema:
        if self.random.random() < 0.3:
            return {"const": self.random.choice([*WORDS, 7, None, {"a": [1, "é"]}])}
        return {"enum": self.random.sample([*WORDS, 1, 2.5, True, None, [1], {"k": "v"}], self.random.randint(1, 5))}

    def simple(self, depth: int) -> Schema:
        return self.random.choice([{"type": "boolean"}, {"type": "null"}, {"type": ["boolean", "null"]}])
