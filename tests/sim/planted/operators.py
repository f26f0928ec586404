"""Small mistakes, at every place of a C source where they can be made."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

try:
    import tree_sitter_c
    from tree_sitter import Language, Node, Parser
except ImportError:
    sys.exit("automatic: it reads C with tree-sitter: pip install tree-sitter tree-sitter-c")

SWAPS = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "&&": ("||",),
    "||": ("&&",),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "%": ("/",),
    "&": ("|",),
    "|": ("&",),
    "+=": ("-=", "="),
    "-=": ("+=", "="),
    "|=": ("&=", "="),
    "&=": ("|=",),
    "++": ("--",),
    "--": ("++",),
}
SIMPLE = ("break_statement", "continue_statement", "return_statement", "goto_statement")


class Change(NamedTuple):
    """One mistake: the text between two offsets becomes another."""

    begin: int
    end: int
    new: str
    what: str
    places: tuple[tuple[int, int], ...]  # the first and last lines of what it changes, and of what is around it


def text_of(node: Node) -> str:
    assert node.text is not None
    return node.text.decode()


def _around(node: Node | None) -> tuple[tuple[int, int], ...]:
    places = []
    while node and node.type != "function_definition":
        places.append((node.start_point[0] + 1, node.end_point[0] + 1))
        if node.type == "compound_statement":
            break
        node = node.parent
    return tuple(places)


def _is_early(node: Node) -> bool:
    """Whether a return or break is not the last statement of its function or case."""
    parent = node.parent
    return bool(parent) and parent.type in ("if_statement", "else_clause", "compound_statement") and not (
        parent.type == "compound_statement"
        and (not parent.parent or parent.parent.type == "function_definition" or parent.named_children[-1] != node)
    )


def _number(text: str) -> list[str]:
    digits = text.rstrip("uUlL")
    try:
        value = int(digits, 0)
    except ValueError:
        return []
    return [str(new) for new in dict.fromkeys((value + 1, max(value - 1, 0), 0)) if new != value]


def _of(node: Node) -> Iterator[tuple[Node, str, str]]:
    """What to replace, by what, and what mistake that is."""
    text = text_of(node)
    if node.type in ("binary_expression", "assignment_expression", "update_expression"):
        operator = node.child_by_field_name("operator")
        assert operator
        for new in SWAPS.get(operator.type, ()):
            yield operator, new, f"{operator.type} becomes {new}"
        if operator.type in ("&&", "||"):
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            assert left and right
            yield node, text_of(left), "a condition is forgotten"
            yield node, text_of(right), "a condition is forgotten"
    elif node.type == "number_literal":
        for new in _number(text):
            yield node, new, f"{text} becomes {new}"
    elif node.type in ("true", "false"):
        new = "false" if node.type == "true" else "true"
        yield node, new, f"{node.type} becomes {new}"
    elif node.type == "unary_expression" and text.startswith("!"):
        argument = node.child_by_field_name("argument")
        assert argument
        yield node, text_of(argument), "a negation is forgotten"
    elif node.type == "expression_statement" and node.named_children:
        yield node, "(void)0;", "a statement is forgotten"
    elif node.type in SIMPLE and (node.type != "return_statement" or _is_early(node)):
        yield node, "(void)0;", "a statement is forgotten"
    elif node.type == "conditional_expression":
        parts = [node.child_by_field_name(name) for name in ("condition", "consequence", "alternative")]
        if all(parts):
            yield node, text_of(parts[1]), "only one side of a choice"  # type: ignore[arg-type]
            yield node, text_of(parts[2]), "only one side of a choice"  # type: ignore[arg-type]
    elif node.type == "else_clause":
        yield node, "", "an else is forgotten"
    if node.type in ("if_statement", "while_statement"):
        condition = node.child_by_field_name("condition")
        if condition:
            yield condition, f"(!{text_of(condition)})", "a condition is negated"
            if node.type == "if_statement":
                yield condition, f"(0 && {text_of(condition)})", "a branch is never taken"
                yield condition, f"(1 || {text_of(condition)})", "a branch is always taken"


def changes(source: str) -> Iterator[Change]:
    """All mistakes that can be made in a source, in the order of its text; the number of its lines stays."""
    tree = Parser(Language(tree_sitter_c.language())).parse(source.encode())
    stack = [tree.root_node]
    while stack:
        node = stack.pop()
        if node.type.startswith("preproc_") and node.type not in ("preproc_if", "preproc_ifdef", "preproc_else"):
            continue
        stack += reversed(node.children)
        for old, new, what in _of(node):
            lines = text_of(old).count("\n") - new.count("\n")
            yield Change(old.start_byte, old.end_byte, new + "\n" * lines, what, _around(old))
