r"""Java's regular expressions (java.util.regex.Pattern), as `subscribePattern` has them, for names of topics. Pure.

The names of topics have letters of ASCII, digits, `.`, `_` and `-`, so a class of characters is a set of ASCII
characters that can be worked out: `[a-z&&[^gsl]]` becomes the list of its letters. Flags are worked out as well, and
what remains is written as an expression of Python's `re`. A construct that Python has no like of is refused by name.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

ASCII = frozenset(map(chr, range(128)))
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SPACE = frozenset(" \t\n\x0b\f\r")
_DIGITS = frozenset(string.digits)
_LOWER, _UPPER = frozenset(string.ascii_lowercase), frozenset(string.ascii_uppercase)
_LETTERS = _LOWER | _UPPER
_PUNCTUATION = frozenset(string.punctuation)
_CONTROLS = frozenset(map(chr, (*range(32), 127)))
_HORIZONTAL = frozenset(" \t")
_VERTICAL = frozenset("\n\x0b\f\r")
_LINE_ENDS = frozenset("\n\r")

_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE, "h": _HORIZONTAL, "v": _VERTICAL}
"""Escapes that stand for a class; the capital letter for all others."""

_PROPERTIES = {
    "lower": _LOWER, "upper": _UPPER, "ascii": ASCII, "alpha": _LETTERS, "digit": _DIGITS, "alnum": _LETTERS | _DIGITS,
    "punct": _PUNCTUATION, "graph": _LETTERS | _DIGITS | _PUNCTUATION,
    "print": _LETTERS | _DIGITS | _PUNCTUATION | {" "}, "blank": _HORIZONTAL, "cntrl": _CONTROLS,
    "xdigit": frozenset(string.hexdigits), "space": _SPACE,
    "javalowercase": _LOWER, "javauppercase": _UPPER, "javaalphabetic": _LETTERS, "javaletter": _LETTERS,
    "javadigit": _DIGITS, "javaletterordigit": _LETTERS | _DIGITS, "javawhitespace": _SPACE | set("\x1c\x1d\x1e\x1f"),
    "isalphabetic": _LETTERS, "isletter": _LETTERS, "isdigit": _DIGITS, "islowercase": _LOWER, "isuppercase": _UPPER,
    "ispunctuation": frozenset("!\"#%&'()*,-./:;?@[\\]_{}"), "iscontrol": _CONTROLS,
    "iswhite_space": _SPACE, "ishex_digit": frozenset(string.hexdigits), "islatin": _LETTERS, "inbasiclatin": ASCII,
    "l": _LETTERS, "lu": _UPPER, "ll": _LOWER, "n": _DIGITS, "nd": _DIGITS,
    "isl": _LETTERS, "islu": _UPPER, "isll": _LOWER, "isn": _DIGITS, "isnd": _DIGITS,
}  # fmt: skip
"""POSIX classes, those of java.lang.Character and of Unicode, as far as names of topics can have them."""

_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\x07", "e": "\x1b"}
_ANCHORS = {"b": r"\b", "B": r"\B", "A": r"\A", "z": r"\Z", "Z": r"\Z"}
_NOTHING = r"[^\x00-\U0010ffff]"
_REPEAT = re.compile(r"\{[0-9]{1,10}(,[0-9]{0,10})?\}")
"""A larger number than an int's is an error in Java too."""
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")


class PatternError(ValueError):
    """The expression is none of Java's, or has a construct that is not served; the message names it."""


def compile_java(pattern: str) -> re.Pattern[str]:
    r"""The expression for Python, to be used with `search` as Java's is with `find`. PatternError.

    >>> bool(compile_java(r"^c_[a-z&&[^gsl]]+$").search("c_orders"))
    False
    >>> bool(compile_java(r"\Qa.b\E\z").search("xa.b"))
    True
    """
    translated = _Translation(pattern).run()
    try:
        return re.compile(translated)
    except (re.error, OverflowError) as error:
        raise PatternError(f"is no regular expression that is served: {error}") from None


@dataclass
class _Translation:
    """The state of going through an expression from left to right."""

    pattern: str
    position: int = 0
    any_case: bool = False

    def run(self) -> str:
        """The whole expression."""
        found: list[str] = []
        outer: list[bool] = []  # any_case of the groups around
        while self.position < len(self.pattern):
            letter = self.pattern[self.position]
            if letter == "\\":
                found.append(self._escape())
            elif letter == "[":
                found.append(_written(self._class()))
            elif letter == "(":
                found.append(self._group(outer))
            elif letter == ")":
                if not outer:
                    raise PatternError("a ) has no (")
                self.any_case = outer.pop()
                self.position += 1
                found.append(")")
            elif letter == "{":
                repeat = _REPEAT.match(self.pattern, self.position)
                if repeat is None:
                    raise PatternError(f"illegal repetition at {self.pattern[self.position :]!r}")
                self.position = repeat.end()
                found.append(repeat.group())
            elif letter == ".":
                self.position += 1
                found.append(_written(ASCII - _LINE_ENDS))
            elif letter in "^$|*+?":
                self.position += 1
                found.append(letter)
            else:
                self.position += 1
                found.append(self._literal(letter))
        if outer:
            raise PatternError("a ( is not closed")
        return "".join(found)

    def _literal(self, letter: str) -> str:
        return _written(_both_cases({letter})) if self.any_case and letter in _LETTERS else re.escape(letter)

    def _group(self, outer: list[bool]) -> str:
        """An opening parenthesis with what belongs to it."""
        rest = self.pattern[self.position :]
        for kind in ("(?=", "(?!", "(?<=", "(?<!", "(?>"):
            if rest.startswith(kind):
                outer.append(self.any_case)
                self.position += len(kind)
                return kind
        name = re.match(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>", rest)
        if name is not None:
            outer.append(self.any_case)
            self.position += name.end()
            return f"(?P<{name.group(1)}>"
        if not rest.startswith("(?"):
            outer.append(self.any_case)
            self.position += 1
            return "("
        flags = _FLAGS.match(rest)
        if flags is None:
            raise PatternError(f"the construct {rest[:3]!r} is not served")
        on, off = flags.group(1), flags.group(2) or ""
        for flag in (*on, *off):
            # No name has the end of a line or a letter beyond ASCII, to which the flags m, s, d, u and U apply.
            if flag not in "imsduU":
                raise PatternError(f"the flag (?{flag}) is not served")
        if flags.group(3) == ":":
            outer.append(self.any_case)
        self.any_case = (self.any_case or "i" in on) and "i" not in off
        self.position += flags.end()
        return "(?:" if flags.group(3) == ":" else ""

    def _escape(self) -> str:
        """What a backslash stands for outside of a class."""
        after = self._after_backslash()
        if after == "Q":
            return "".join(self._literal(letter) for letter in self._quoted())
        if after in _ANCHORS:
            if self.pattern.startswith("\\b{", self.position):
                raise PatternError("the construct \\b{g} is not served")
            self.position += 2
            return _ANCHORS[after]
        if after in "123456789":
            digits = re.compile(r"\\([1-9])").match(self.pattern, self.position)
            assert digits is not None
            self.position = digits.end()
            reference = f"(?:\\{digits.group(1)})"
            return f"(?i:{reference})" if self.any_case else reference
        if after == "k":
            name = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>").match(self.pattern, self.position)
            if name is None:
                raise PatternError("\\k is not followed by the name of a group")
            self.position = name.end()
            reference = f"(?P={name.group(1)})"
            return f"(?i:{reference})" if self.any_case else reference
        if after in "pP" or after.lower() in _CLASSES:
            return _written(self._predefined())
        return self._literal(self._character())

    def _after_backslash(self) -> str:
        if self.position + 1 >= len(self.pattern):
            raise PatternError("ends with a backslash")
        return self.pattern[self.position + 1]

    def _quoted(self) -> str:
        end = self.pattern.find("\\E", self.position)
        text = self.pattern[self.position + 2 : end if end >= 0 else None]
        self.position = end + 2 if end >= 0 else len(self.pattern)
        return text

    def _predefined(self) -> frozenset[str]:
        r"""\d, \W, \p{Alpha} and their like, as a set."""
        after = self._after_backslash()
        if after not in "pP":
            self.position += 2
            found = _CLASSES[after.lower()]
            return found if after.islower() else ASCII - found
        name = re.compile(r"\\[pP](?:\{([^}]*)\}|([A-Za-z]))").match(self.pattern, self.position)
        if name is None:
            raise PatternError(f"\\{after} is not followed by the name of a class")
        self.position = name.end()
        found_class = _PROPERTIES.get(_property(name.group(1) or name.group(2)))
        if found_class is None:
            raise PatternError(f"the class {name.group()} is not served")
        if self.any_case and found_class in (_LOWER, _UPPER):
            found_class = _LETTERS
        return found_class if after == "p" else ASCII - found_class

    def _character(self) -> str:
        """An escape that stands for one character."""
        after = self._after_backslash()
        codes = (r"\\0([0-3]?[0-7]{1,2})", 8), (r"\\x([0-9a-fA-F]{2})", 16), (r"\\u([0-9a-fA-F]{4})", 16)
        for form, base in (*codes, (r"\\x\{([0-9a-fA-F]+)\}", 16)):
            code = re.compile(form).match(self.pattern, self.position)
            if code is not None:
                self.position = code.end()
                if int(code.group(1), base) > 0x10FFFF:
                    raise PatternError(f"{code.group()} is no character")
                return chr(int(code.group(1), base))
        if after == "c" and self.position + 2 < len(self.pattern):
            self.position += 3
            return chr(ord(self.pattern[self.position - 1]) ^ 64)
        if after in _CONTROL_ESCAPES:
            self.position += 2
            return _CONTROL_ESCAPES[after]
        if after.isascii() and after.isalnum():
            raise PatternError(f"the construct \\{after} is not served")
        self.position += 2
        return after

    # -- classes

    def _class(self) -> frozenset[str]:
        """[...] from its bracket on, with nested classes and intersections."""
        self.position += 1
        is_negated = self.pattern.startswith("^", self.position)
        self.position += is_negated
        whole: frozenset[str] | None = None  # what stands left of &&
        part: frozenset[str] = frozenset()
        is_empty = True
        while self.position < len(self.pattern):
            letter = self.pattern[self.position]
            if letter == "]" and not is_empty:
                self.position += 1
                found = part if whole is None else whole & part
                return ASCII - found if is_negated else found
            if self.pattern.startswith("&&", self.position):
                if is_empty:
                    raise PatternError("nothing stands before && in a class")
                self.position += 2
                whole = part if whole is None else whole & part
                part, is_empty = frozenset(), True
                if self.pattern.startswith(("]", "&"), self.position):
                    raise PatternError("nothing stands behind && in a class")
                continue
            is_empty = False
            part |= self._item(letter)
        raise PatternError("a [ is not closed")

    def _item(self, letter: str) -> frozenset[str]:
        """One member of a class: a class, a character or a range."""
        if letter == "[":
            return self._class()
        if letter == "\\":
            after = self._after_backslash()
            if after == "Q":
                return self._cased(frozenset(self._quoted()))
            if after in "pP" or after.lower() in _CLASSES:
                return self._predefined()
        first = self._member()
        is_range = self.pattern.startswith("-", self.position) and not self.pattern.startswith(
            ("-]", "-[", "-&&"), self.position
        )
        if not is_range or self.position + 1 >= len(self.pattern):
            return self._cased(frozenset(first))
        self.position += 1
        if self.pattern.startswith("\\", self.position):
            after = self._after_backslash()
            if after in "pPQ" or after.lower() in _CLASSES:
                raise PatternError("a range of a class ends with a class")
        last = self._member()
        if last < first:
            raise PatternError(f"the range {first}-{last} of a class goes backwards")
        return self._cased(frozenset(map(chr, range(ord(first), min(ord(last), 127) + 1))))

    def _member(self) -> str:
        if self.pattern.startswith("\\", self.position):
            return self._character()
        self.position += 1
        return self.pattern[self.position - 1]

    def _cased(self, letters: frozenset[str]) -> frozenset[str]:
        return _both_cases(letters) if self.any_case else letters


def _property(name: str) -> str:
    """The name as the table has it, without the keys that may stand before it (`script=`, `gc=`)."""
    key, _, value = name.rpartition("=")
    return {"": "", "script": "is", "sc": "is", "general_category": "", "gc": "", "block": "in", "blk": "in"}.get(
        key.lower(), "?"
    ) + value.lower()


def _both_cases(letters: frozenset[str] | set[str]) -> frozenset[str]:
    return frozenset(other for letter in letters for other in (letter, letter.swapcase()) if len(other) == 1)


def _written(found: frozenset[str]) -> str:
    """A set of characters as an expression, the empty one as one that never matches."""
    letters = sorted(letter for letter in found if letter in ASCII)
    return "[" + "".join(re.escape(letter) for letter in letters) + "]" if letters else _NOTHING
