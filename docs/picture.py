#!/usr/bin/env python3
"""Draws what a command prints, from standard input, as an SVG of a terminal: ``emu top --once | docs/picture.py 'emu top'``."""

import sys
from html import escape

WIDTH, HEIGHT, MARGIN = 8.4, 20, 14

lines = ["$ " + sys.argv[1], *sys.stdin.read().splitlines()]
width, height = 80 * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">')
print('<rect width="100%" height="100%" rx="6" fill="#1b1f24"/>')
print('<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="#e6e6e6">')
for number, line in enumerate(lines):
    # Columns stay below each other in whatever font there is.
    room = f'textLength="{len(line) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"' if line else ""
    text = escape(line).replace(" ", "\u00a0")
    print(f'<text x="{MARGIN}" y="{MARGIN + (number + 0.75) * HEIGHT:.0f}" {room}>{text}</text>')
print("</g></svg>")
