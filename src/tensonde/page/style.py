"""The look of the page, light and dark by the reader's own setting. No script, no font and nothing else is fetched."""

STYLE = """
:root { color-scheme: light dark; --back: #f3f5f8; --panel: #fff; --sunken: #f7f8fa; --line: #dfe4ea; --text: #1a2230; --dim: #5d6979;
  --accent: #2563eb; --ok: #2f9e5f; --warn: #b45309; --bad: #d92d32; --bad-tint: #fde3e3; --none: #a9b3c0; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1015; --panel: #14181f; --sunken: #10141a; --line: #262d38; --text: #e3e8ef;
  --dim: #98a3b3; --accent: #6ea4ff; --ok: #43b97a; --warn: #e8a33d; --bad: #f8706c; --bad-tint: #45191b; --none: #566070; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 24px max(20px, calc(50% - 540px)) 60px; background: var(--back); color: var(--text);
  font: 13px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 20px; margin: 0 0 4px; letter-spacing: -.01em; } h2 { font-size: 14px; margin: 26px 0 8px; } h3 { font-size: 13.5px; margin: 0; }
p { margin: 3px 0; } .dim { color: var(--dim); } .mono, code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 11.5px; }
.facts { display: flex; flex-wrap: wrap; gap: 4px 22px; margin: 6px 0 0; } .facts div { display: flex; gap: 6px; } .facts dt { color: var(--dim); } .facts dd { margin: 0; font-weight: 600; }
.badge { display: inline-block; padding: 0 7px; border-radius: 9px; font-size: 11px; background: var(--line); color: var(--dim); } .badge.bad { background: var(--bad-tint); color: var(--bad); }
.card, table, figure, .tree { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; }
.card { border-left: 3px solid var(--none); padding: 10px 14px; margin-bottom: 10px; } .card.error { border-left-color: var(--bad); } .card.warning { border-left-color: var(--warn); }
.card.follows { margin-left: 26px; } .card header { display: flex; align-items: center; gap: 8px; flex-wrap: wrap; } .card header .dim { margin-left: auto; }
.evidence { display: grid; grid-template-columns: max-content 1fr; gap: 0 12px; margin: 6px 0; } .evidence dt { color: var(--dim); } .evidence dd { margin: 0; overflow-wrap: anywhere; }
pre { margin: 6px 0 0; padding: 4px 0; background: var(--sunken); border: 1px solid var(--line); border-radius: 6px; overflow-x: auto; line-height: 1.55; }
pre span { display: block; padding: 0 10px; } pre span.on { background: color-mix(in srgb, var(--bad) 14%, transparent); box-shadow: inset 3px 0 0 var(--bad); } pre i { display: inline-block; width: 40px; color: var(--dim); font-style: normal; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 10px; } figure { margin: 0; padding: 8px 10px 4px; } figcaption { display: flex; gap: 8px; align-items: baseline; }
svg { display: block; width: 100%; } svg text { font: 10px system-ui, sans-serif; fill: var(--dim); } .rule { stroke: var(--line); } .line { fill: none; stroke: var(--accent); stroke-width: 1.5; stroke-linejoin: round; stroke-linecap: round; } .cross { stroke: var(--bad); stroke-width: 1.4; }
table { border-collapse: separate; border-spacing: 0; width: 100%; overflow: hidden; } th { text-align: left; font-weight: 550; font-size: 11px; color: var(--dim); padding: 6px 10px; border-bottom: 1px solid var(--line); }
td { padding: 4px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; } td code { white-space: normal; overflow-wrap: anywhere; } tr:last-child td { border-bottom: 0; } .scroll { overflow-x: auto; }
.mark { display: inline-block; width: 14px; text-align: center; font-size: 10px; color: var(--none); } .mark.ok { color: var(--ok); } .mark.warn { color: var(--warn); } .mark.bad { color: var(--bad); font-weight: 800; }
.tree { padding: 6px 10px; } .row { display: flex; align-items: center; gap: 8px; min-height: 23px; } .inside { padding-left: 18px; } .leaf { padding-left: 14px; } summary { cursor: pointer; list-style: none; } summary::-webkit-details-marker { display: none; }
summary::before { content: "▸"; color: var(--dim); width: 6px; } details[open] > summary::before { content: "▾"; } .right { margin-left: auto; } .trail { width: 120px; flex: none; } .spark { height: 18px; }
footer { margin-top: 28px; color: var(--dim); font-size: 11px; }
"""
