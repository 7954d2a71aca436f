// Just enough colour for Python excerpts: keywords, strings, comments, numbers. Everything is escaped.

const KEYWORDS =
  'and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|False|try|while|with|yield|self';
const TOKEN = new RegExp(
  `(?<c>#.*$)|(?<s>[rbfu]{0,2}(?:"(?:\\\\.|[^"\\\\])*"|'(?:\\\\.|[^'\\\\])*'))|\\b(?<k>${KEYWORDS})\\b|(?<n>\\b\\d[\\d_.]*(?:e[+-]?\\d+)?\\b)`,
  'gi',
);

const escape = (text: string) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');

export function highlight(line: string): string {
  let out = '';
  let at = 0;
  for (const found of line.matchAll(TOKEN)) {
    const kind = Object.entries(found.groups!).find(([, text]) => text !== undefined)![0];
    out += escape(line.slice(at, found.index)) + `<span class="${kind}">${escape(found[0])}</span>`;
    at = found.index + found[0].length;
  }
  return out + escape(line.slice(at));
}
