"""The style sheet of the pages, for light and dark mode."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fdfdfc; --ink: #1b1f24; --quiet: #59616b; --faint: #d8dce1; --panel: #f4f5f6;
  --warn: #9a3412;
  --series-1: #0072b2; --series-2: #d55e00; --series-3: #009e73;
  --series-4: #cc79a7; --series-5: #56b4e9; --series-6: #e69f00;
  --series-7: #7a4fa0; --series-8: #8c6d1f; --series-9: #a3113f;
  --series-10: #4d6b2f; --series-11: #6b6f76; --series-12: #00707a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15181c; --ink: #e5e7ea; --quiet: #a0a8b2; --faint: #343a42; --panel: #1d2126;
    --warn: #f6ad7b;
    --series-1: #4aa3df; --series-2: #f2884b; --series-3: #34c39a;
    --series-4: #e09cc3; --series-5: #9bd5f7; --series-6: #f2b84a;
    --series-7: #b48ee0; --series-8: #c9a84f; --series-9: #ef6d8f;
    --series-10: #9cc173; --series-11: #aab0b8; --series-12: #45c1cc;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 70rem; margin: 0 auto; padding: 3rem 1.5rem 2rem; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.01em; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 3rem 0 0.75rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 0.4rem; }
h1, h2, h3, p, li { overflow-wrap: anywhere; }
p { margin: 0 0 0.75rem; max-width: 44rem; }
.headline { font-size: 1.2rem; line-height: 1.5; text-wrap: pretty; }
.quiet, figcaption { color: var(--quiet); font-size: 0.9rem; max-width: 44rem; }
.description { white-space: pre-line; }
.scroll {  /* with shadows at the edges behind which the content continues */
  overflow-x: auto; margin: 0 0 0.75rem;
  background:
    linear-gradient(to right, var(--paper) 50%, transparent) left / 2rem 100% no-repeat local,
    linear-gradient(to left, var(--paper) 50%, transparent) right / 2rem 100% no-repeat local,
    linear-gradient(to right, var(--faint), transparent) left / 1rem 100% no-repeat scroll,
    linear-gradient(to left, var(--faint), transparent) right / 1rem 100% no-repeat scroll;
}
.scroll:focus-visible { outline: 2px solid var(--series-1); outline-offset: 2px; }
table { border-collapse: collapse; min-width: min(100%, 36rem); font-size: 0.9rem; }
th, td {
  padding: 0.4rem 0 0.4rem 1.1rem; text-align: right; vertical-align: top;
  font-variant-numeric: tabular-nums;
}
thead th {
  font-weight: 500; color: var(--quiet); border-bottom: 1px solid var(--ink);
  vertical-align: bottom;
}
tbody td, tbody th { border-bottom: 1px solid var(--faint); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tbody th { font-weight: 500; min-width: 9rem; }
td.best, span.best { font-weight: 700; }
.matrix th, .matrix td { line-height: 1.35; }
.matrix thead th, .matrix td { white-space: nowrap; }
.matrix small { color: var(--quiet); font-size: 0.78rem; }
.matrix a { color: inherit; text-decoration-color: var(--faint); text-underline-offset: 0.2em; }
.loud {
  border: 2px solid var(--warn); border-radius: 6px; padding: 0.6rem 1rem; font-weight: 600;
  color: var(--warn);
}
details { margin: 0.75rem 0; }
summary { cursor: pointer; font-weight: 500; }
details h3 { display: none; }
.name { display: flex; align-items: baseline; }
.name span { min-width: 0; overflow-wrap: anywhere; }
.key {
  flex: none; width: 0.7rem; height: 0.7rem; margin-right: 0.5rem; border-radius: 50%;
  background: currentColor;
}
.ring { background: none; border: 2px solid currentColor; }
.unfinished { color: var(--warn); }
aside {
  border-left: 3px solid var(--warn); padding: 0.1rem 0 0.1rem 1rem; margin: 1.25rem 0;
}
aside ul { margin: 0.25rem 0 0; padding-left: 1.1rem; }
figure { margin: 0; }
figure svg { display: block; width: 100%; min-width: 34rem; height: auto; }
figure svg .point { fill: transparent; pointer-events: all; }
figure svg .point:hover { fill: var(--ink); fill-opacity: 0.35; }
figure svg text { font-family: inherit !important; }
code {
  font: 0.9em ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace;
  white-space: nowrap;
}
pre {
  margin: 0; padding: 0.75rem 1rem; overflow-x: auto; background: var(--panel); border-radius: 6px;
  font: 0.82rem/1.6 ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace;
}
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--faint); }
@media (max-width: 40rem) { main { padding-top: 1.5rem; } h1 { font-size: 1.5rem; } }
@media print { .scroll, pre { overflow: visible; } pre { white-space: pre-wrap; } }
"""
