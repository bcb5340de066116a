"""What is known to be wrong and not mended yet: each switch keeps the rules off that find it.

A change that mends one takes its switch away; none is left when all is well.
"""

from __future__ import annotations
