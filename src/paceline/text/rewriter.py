"""Rewrites a parsed Jinja template so that the work Jinja does by itself passes through charged helpers."""

from collections.abc import Callable

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

# What needs other templates, or switches escaping, has no place in a chat template.
REFUSED_NODES = (nodes.Block, nodes.Extends, nodes.FromImport, nodes.Import, nodes.Include, nodes.EvalContextModifier)


class Rewriter(NodeTransformer):
    """Loops, literal text, `~`, comparisons, slices and keys of mappings become calls of helpers."""

    def get_visitor(self, node: nodes.Node) -> Callable[..., nodes.Node] | None:
        """The rewrite of a kind of node, None to descend."""
        rewrites: dict[type[nodes.Node], Callable[..., nodes.Node]] = {
            nodes.For: self.loop,
            nodes.TemplateData: self.text,
            nodes.Concat: self.concatenation,
            nodes.Compare: self.comparison,
            nodes.Getitem: self.item,
            nodes.Pair: self.entry,
        }
        return rewrites.get(type(node))

    def generic_visit(self, node: nodes.Node, *args: object, **kwargs: object) -> nodes.Node:
        """Descend, refusing what has no place in a chat template."""
        if isinstance(node, REFUSED_NODES):
            name = type(node).__name__.lower()
            raise TemplateSyntaxError(f"{name!r} is not available in chat templates", node.lineno)
        return super().generic_visit(node, *args, **kwargs)

    def loop(self, node: nodes.For) -> nodes.Node:
        """Charge each step of a loop."""
        if node.recursive:
            raise TemplateSyntaxError("recursive loops are not available in chat templates", node.lineno)
        self.generic_visit(node)
        assert isinstance(node.iter, nodes.Expr), "a loop runs over an expression"
        node.iter = _helper("counted", node.iter)
        return node

    def text(self, node: nodes.TemplateData) -> nodes.Node:
        """Literal text is output like any other."""
        return _helper("text", nodes.Const(node.data, lineno=node.lineno))

    def concatenation(self, node: nodes.Concat) -> nodes.Node:
        """`~` makes a string as long as its parts."""
        self.generic_visit(node)
        return _helper("concatenated", nodes.List(node.nodes, lineno=node.lineno))

    def comparison(self, node: nodes.Compare) -> nodes.Node:
        """A chain of comparisons is the conjunction of its links."""
        self.generic_visit(node)
        left = node.expr
        link: nodes.Expr | None = None
        for operand in node.ops:
            operation = nodes.Const(operand.op, lineno=node.lineno)
            next_link = _helper("compared", left, operation, operand.expr)
            link = next_link if link is None else nodes.And(link, next_link, lineno=node.lineno)
            left = operand.expr
        assert link is not None, "a comparison has at least one operator"
        return link

    def item(self, node: nodes.Getitem) -> nodes.Node:
        """A slice is a copy."""
        self.generic_visit(node)
        return _helper("sized", node) if isinstance(node.arg, nodes.Slice) else node

    def entry(self, node: nodes.Pair) -> nodes.Node:
        """A mapping hashes its keys."""
        self.generic_visit(node)
        node.key = _helper("key", node.key)
        return node


def _helper(name: str, value: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    """A call of one of HELPERS; the space keeps its name out of a template's reach."""
    return nodes.Filter(value, f"{name} helper", list(args), [], None, None, lineno=value.lineno)
