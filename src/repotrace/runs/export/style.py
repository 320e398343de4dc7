"""The style sheet of exported pages: light and dark, for a phone, a screen and paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --bg: #f7f7f4; --card: #ffffff; --sunk: #f1f1ec; --fg: #1c2126; --muted: #5c646d;
  --line: #dfe0da; --accent: #2957c8; --good: #17693f; --bad: #b3261e; --warn: #8a5a00;
  --good-bg: #e3f4ea; --bad-bg: #fce8e6; --warn-bg: #fdf1d6; --info-bg: #e8eefb;
  --add: #e4f6ea; --del: #fdeceb; --hunk: #eef1fb;
  --hk: #7a2aa8; --hs: #1b6b3a; --hc: #67707a; --hn: #9a4b00; --hf: #2248b0; --hb: #0b6577;
  --t-llm: #7a5af5; --t-edit: #1f8f5f; --t-test: #d18a00; --t-command: #4879d6; --t-other: #8b939c;
  --mono: ui-monospace, "SF Mono", "Cascadia Code", "JetBrains Mono", Menlo, Consolas, monospace;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --bg: #121518; --card: #1a1e22; --sunk: #15191c; --fg: #e4e7ea; --muted: #9aa4ae;
    --line: #2d343b; --accent: #8fb0ff; --good: #6fd39a; --bad: #ff8a80; --warn: #f0be5c;
    --good-bg: #15301f; --bad-bg: #3a1b19; --warn-bg: #352a10; --info-bg: #1c2742;
    --add: #13301f; --del: #371b1a; --hunk: #1c2333;
    --hk: #d3a6ff; --hs: #8fd6a3; --hc: #8b959f; --hn: #f2b46d; --hf: #9db8ff; --hb: #7cd0de;
    --t-llm: #9d86ff; --t-edit: #45b985; --t-test: #e0a53a; --t-command: #6f9bea;
    --t-other: #78818a;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body {
  margin: 0; background: var(--bg); color: var(--fg);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  overflow-wrap: anywhere;
}
main, header, footer { max-width: 76rem; margin: 0 auto; padding: 0 1.5rem; }
header { padding-top: 2.5rem; }
a { color: var(--accent); text-underline-offset: 2px; }
a:focus-visible, summary:focus-visible, input:focus-visible + label {
  outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px;
}
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--card); padding: .5rem 1rem; z-index: 2; }
.over { color: var(--muted); font-size: .87rem; margin: 0; }
h1 { font-size: clamp(1.35rem, 1rem + 1.6vw, 1.95rem); line-height: 1.25; margin: .3rem 0 .8rem;
  letter-spacing: -.012em; }
h2 { font-size: 1.12rem; margin: 2.4rem 0 .8rem; letter-spacing: -.005em; }
h3 { font-size: .8rem; text-transform: uppercase; letter-spacing: .06em; color: var(--muted);
  margin: 1.1rem 0 .4rem; font-weight: 600; }
p { margin: .4rem 0; }
code, pre, .mono { font-family: var(--mono); font-size: .86em; }
pre { margin: .4rem 0; padding: .7rem .9rem; background: var(--sunk); border: 1px solid var(--line);
  border-radius: 8px; overflow-x: auto; white-space: pre-wrap; line-height: 1.5; tab-size: 4; }
.chips { display: flex; flex-wrap: wrap; gap: .4rem; margin: 0 0 .6rem; }
.chip { display: inline-block; padding: .1rem .6rem; border-radius: 99px; font-size: .82rem;
  background: var(--sunk); border: 1px solid var(--line); white-space: nowrap; max-width: 100%;
  overflow: hidden; text-overflow: ellipsis; vertical-align: middle; }
.good { color: var(--good); background: var(--good-bg); border-color: transparent; }
.bad { color: var(--bad); background: var(--bad-bg); border-color: transparent; }
.warn { color: var(--warn); background: var(--warn-bg); border-color: transparent; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 1rem 1.2rem; margin: .7rem 0; }
.card > :first-child { margin-top: 0; }
.card > :last-child { margin-bottom: 0; }
.verdict { border-left: 4px solid var(--bad); }
.verdict.unsure { border-left-color: var(--warn); }
.verdict ul { margin: .4rem 0; padding-left: 1.2rem; }
.stats { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.2rem, 1fr)); gap: .7rem;
  margin: 1.2rem 0 0; padding: 0; list-style: none; }
.stats li { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: .7rem .9rem; }
.stats b { display: block; font-size: 1.22rem; font-weight: 620; letter-spacing: -.01em;
  font-variant-numeric: tabular-nums; }
.stats span { color: var(--muted); font-size: .82rem; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; }
dl.facts dt { color: var(--muted); }
dl.facts dd { margin: 0; min-width: 0; }
.timeline svg { display: block; width: 100%; }
.timeline line { stroke: var(--line); vector-effect: non-scaling-stroke; }
.axis { display: flex; justify-content: space-between; color: var(--muted); font-size: .75rem;
  border-top: 1px solid var(--line); padding-top: .2rem; }
.timeline a:hover rect, .timeline a:focus rect { stroke: var(--fg); stroke-width: 1.5px; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; color: var(--muted); font-size: .82rem;
  margin-top: .5rem; }
.legend i { display: inline-block; width: .7rem; height: .7rem; border-radius: 3px;
  margin-right: .35rem; vertical-align: -1px; }
rect.llm { fill: var(--t-llm); } rect.edit { fill: var(--t-edit); }
rect.test { fill: var(--t-test); }
rect.command { fill: var(--t-command); } rect.other { fill: var(--t-other); }
rect.failed { fill: var(--bad); }
i.llm { background: var(--t-llm); } i.edit { background: var(--t-edit); }
i.test { background: var(--t-test); } i.command { background: var(--t-command); }
i.other { background: var(--t-other); } i.failed { background: var(--bad); }
.scroll { overflow-x: auto; }
table.grid { border-collapse: collapse; font-size: .85rem; }
table.grid th { font-weight: 500; text-align: left; padding: .2rem .6rem; color: var(--muted); }
table.grid tbody th { font-family: var(--mono); font-size: .8rem; color: var(--fg);
  position: sticky; left: 0; background: var(--card); max-width: 32rem; min-width: 12rem; }
table.grid td { text-align: center; padding: .2rem .5rem; border: 2px solid var(--card);
  border-radius: 4px; min-width: 2rem; }
.filter { display: flex; flex-wrap: wrap; gap: .35rem; margin: 0 0 .8rem; border: 0; padding: 0; }
.filter input { position: absolute; opacity: 0; }
.filter label { padding: .2rem .8rem; border-radius: 99px; border: 1px solid var(--line);
  background: var(--card); font-size: .85rem; cursor: pointer; }
.filter input:checked + label { background: var(--accent); color: var(--card);
  border-color: transparent; }
body:has(#only-failures:checked) .step:not(.is-failure),
body:has(#only-changes:checked) .step:not(.is-change),
body:has(#only-tests:checked) .step:not(.is-test) { display: none; }
details > summary { cursor: pointer; }
.step { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  margin: .4rem 0; }
.step.is-failure { border-left: 3px solid var(--bad); }
.step.is-retry { border-left: 3px solid var(--warn); }
.step.is-failure.is-retry { border-left-color: var(--bad); }
.step:target { box-shadow: 0 0 0 2px var(--accent); }
.d1 { margin-left: 1.4rem; } .d2 { margin-left: 2.8rem; } .d3 { margin-left: 4.2rem; }
.d4 { margin-left: 5.6rem; }
.step > summary { display: flex; flex-wrap: wrap; align-items: baseline; gap: .15rem .6rem;
  padding: .5rem .9rem; list-style: none; }
.step > summary::-webkit-details-marker { display: none; }
.step > summary::before { content: "\\203A"; color: var(--muted); width: .6rem; }
.step[open] > summary::before { transform: rotate(90deg) translateX(2px); }
.step > summary:hover { background: var(--sunk); border-radius: 10px; }
.no { color: var(--muted); font-variant-numeric: tabular-nums; min-width: 1.6rem;
  text-align: right; }
.kind { font-size: .78rem; font-weight: 600; padding: .05rem .5rem; border-radius: 6px;
  background: var(--sunk); color: var(--muted); max-width: 12rem; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
.kind::before { content: ""; display: inline-block; width: .55rem; height: .55rem;
  border-radius: 3px; margin-right: .35rem; background: var(--t-other); }
.kind.llm::before { background: var(--t-llm); } .kind.edit::before { background: var(--t-edit); }
.kind.test::before { background: var(--t-test); }
.kind.command::before { background: var(--t-command); }
.what { flex: 1 1 16rem; min-width: 0; }
.meta { display: flex; flex-wrap: wrap; gap: .3rem; margin-left: auto; color: var(--muted);
  font-size: .82rem; font-variant-numeric: tabular-nums; align-items: center; min-width: 0; }
.body { padding: 0 .9rem .9rem; border-top: 1px solid var(--line); }
.reason { border-left: 3px solid var(--accent); padding: .1rem 0 .1rem .8rem; margin: .6rem 0;
  white-space: pre-wrap; }
.fold { margin: .4rem 0; }
.fold.plain { font-size: .87rem; }
.fold > summary { color: var(--accent); font-size: .87rem; }
.message { border: 1px solid var(--line); border-radius: 8px; margin: .4rem 0; overflow: hidden; }
.message > .role { display: block; background: var(--sunk); padding: .15rem .8rem;
  font-size: .78rem; font-weight: 600; color: var(--muted); }
.message > .said, .said .said { padding: .4rem .8rem; white-space: pre-wrap; }
.message.assistant > .role { background: var(--info-bg); color: var(--accent); }
.thinking { color: var(--muted); font-style: italic; }
.said pre { margin: .3rem 0; }
.diff { border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; margin: .4rem 0;
  font-family: var(--mono); font-size: .8rem; line-height: 1.5; }
.diff .file { display: flex; gap: .6rem; padding: .3rem .8rem; background: var(--sunk);
  border-bottom: 1px solid var(--line); position: sticky; left: 0; }
.diff .file b { font-weight: 600; }
.diff table { border-collapse: collapse; min-width: 100%; }
.diff td { padding: 0 .6rem; white-space: pre; vertical-align: top; tab-size: 4; }
.diff td.n { color: var(--muted); text-align: right; user-select: none; width: 1%; opacity: .8;
  font-variant-numeric: tabular-nums; }
.diff tr.add { background: var(--add); } .diff tr.del { background: var(--del); }
.diff tr.at td { background: var(--hunk); color: var(--muted); }
.hk { color: var(--hk); } .hs { color: var(--hs); } .hc { color: var(--hc); font-style: italic; }
.hn { color: var(--hn); } .hf { color: var(--hf); } .hb { color: var(--hb); }
.logs { list-style: none; margin: .4rem 0; padding: 0; font-size: .87rem; }
.logs li { padding: .1rem 0; }
.tests { list-style: none; margin: .4rem 0; padding: 0; }
.tests li { padding: .15rem 0; }
.quiet { color: var(--muted); }
footer { color: var(--muted); font-size: .82rem; padding-top: 2.5rem; padding-bottom: 2.5rem; }
@media (max-width: 40rem) {
  main, header, footer { padding-left: .9rem; padding-right: .9rem; }
  header { padding-top: 1.4rem; }
  .d1, .d2, .d3, .d4 { margin-left: .7rem; }
  .axis span:nth-child(even) { display: none; }
  .meta { margin-left: 0; padding-left: 2.2rem; flex: 0 0 100%; }
  dl.facts { grid-template-columns: 1fr; gap: 0; }
  dl.facts dd { margin-bottom: .4rem; }
}
@media print {
  :root { --bg: #fff; --sunk: #f6f6f3; --fg: #000; --muted: #444; --line: #ccc;
    color-scheme: light; }
  body { font-size: 10pt; }
  .filter, .skip { display: none; }
  details::details-content { content-visibility: visible; height: auto; }
  .step, .card, .diff tr { break-inside: avoid; }
  .diff td, pre { white-space: pre-wrap; }
}
"""
