// How numbers, shapes and times are written everywhere.

export type JsonNumber = number | 'NaN' | 'Infinity' | '-Infinity';

/** Numbers that JSON cannot hold come as text. */
export function toNumber(value: JsonNumber | null | undefined): number {
  return value === null || value === undefined ? NaN : Number(value);
}

/** Four significant digits, short, and never ambiguous about NaN and infinity. */
export function number(value: JsonNumber | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return '–';
  const v = Number(value);
  if (Number.isNaN(v)) return 'NaN';
  if (!Number.isFinite(v)) return v > 0 ? '+Inf' : '−Inf';
  if (v === 0) return '0';
  const size = Math.abs(v);
  if (Number.isInteger(v) && size < 1e4) return sign(String(v));
  if (Number.isInteger(v) && size < 1e7) return sign(v.toLocaleString('en-US').replace(/,/g, ' '));
  if (size >= 1e6 || size < 1e-4) return sign(v.toExponential(Math.max(0, digits - 2)).replace('e+', 'e'));
  return sign(String(Number(v.toPrecision(digits))));
}

/** A statistic of a digest. They are all over the finite values, so there is none where every value is NaN or Inf. */
export function statistic(digest: Record<string, JsonNumber | null | undefined>, field: string, digits = 4): string {
  const strange = ['nan', 'pos_inf', 'neg_inf'].reduce((sum, name) => sum + toNumber(digest[name] ?? 0), 0);
  return strange > 0 && strange >= toNumber(digest.count ?? 0) ? '–' : number(digest[field], digits);
}

/** Whatever a finding brings as evidence, in words. */
export function plain(value: unknown): string {
  if (typeof value === 'number' || ['NaN', 'Infinity', '-Infinity'].includes(value as string)) return number(value as JsonNumber);
  if (Array.isArray(value)) return value.every((one) => typeof one === 'number') ? `[${value.map(plain).join(', ')}]` : value.map(plain).join(', ');
  if (value && typeof value === 'object') return Object.entries(value).map(([name, one]) => `${name} ${plain(one)}`).join(', ');
  return String(value);
}

function sign(text: string): string {
  return text.startsWith('-') ? '−' + text.slice(1) : text;
}

/** Of a compiled graph some statistics only are computed; the others are null. Negative numbers it never counts. */
export function isPartial(digest: Record<string, JsonNumber | null> | null | undefined): boolean {
  return digest?.negative === null;
}

/** Statistics over the steps, for a curve: what is not computed stays null, and is no NaN. Where no value of the tensor is finite, there is none. */
export function curve(values: (JsonNumber | null)[] | undefined, nonfinite?: (JsonNumber | null)[], count?: (JsonNumber | null)[]): (number | null)[] {
  const none = (i: number) => toNumber(nonfinite?.[i]) > 0 && toNumber(nonfinite?.[i]) >= toNumber(count?.[i]);
  return (values ?? []).map((value, i) => (value === null ? null : none(i) ? NaN : toNumber(value)));
}

/** What the hub says begins in lower case, for it is also read in a line of the terminal; a name stays as it is. */
export function sentence(text: string): string {
  return text.replace(/^(a|an|it|no|none|nothing|of|only|that|the|there|this|what)(?= )/, (word) => word[0].toUpperCase() + word.slice(1));
}

/** The range of an axis: one that is all but constant gets room on both sides, as a constant does. */
export function spanned(low: number, high: number): [number, number] {
  if (low === null || high === null) return [0, 1];
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (high - low <= 1e-6 * size) return size ? [Math.min(0, 2 * low), Math.max(0, 2 * high)] : [-1, 1];
  const pad = 0.05 * (high - low);
  return [low - (low >= 0 && low < pad ? low : pad), high + pad];
}

/** How many digits the numbers of an axis need to differ. */
export function digits(ticks: (number | null)[]): number {
  const known = ticks.filter((one): one is number => one !== null);
  const apart = Math.abs((known[1] ?? 0) - (known[0] ?? 0));
  const size = Math.max(...known.map(Math.abs));
  return apart && size ? Math.min(6, Math.max(3, Math.ceil(Math.log10(size / apart)) + 1)) : 3;
}

/** One line for each value that a step has: a GAN has two losses, and one line through both would say nothing. Several or many: one line. */
export function lines(step: number[], value: number[]): { step: number[]; value: number[] }[] {
  const found: { step: number[]; value: number[] }[] = [];
  let nth = 0;
  step.forEach((at, i) => {
    nth = i && step[i - 1] === at ? nth + 1 : 0;
    (found[nth] ??= { step: [], value: [] }).step.push(at);
    found[nth].value.push(value[i]);
  });
  return found.length <= 4 ? found : [{ step, value }];
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return '–';
  const p = share * 100;
  return `${p < 0.05 && p > 0 ? '< 0.1' : p < 10 ? p.toFixed(1) : p.toFixed(0)} %`;
}

export function shape(sizes: number[] | undefined, dtype = ''): string {
  return `${dtype}[${(sizes ?? []).join(', ')}]`;
}

export function count(n: number, one: string, many = one + 's'): string {
  return `${number(n)} ${n === 1 ? one : many}`;
}

export function elements(sizes: number[]): number {
  return sizes.reduce((a, b) => a * b, 1);
}

export function clock(iso: string | null | undefined): string {
  if (!iso) return '';
  const at = new Date(iso);
  return Number.isNaN(at.getTime()) ? iso : at.toLocaleTimeString('en-GB');
}

export function day(iso: string | null | undefined): string {
  if (!iso) return '';
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return iso;
  const today = new Date().toDateString() === at.toDateString();
  return today ? at.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' }) : at.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });
}

/** "blocks.3.attn/softmax#0:out" → name and role. */
export function splitAddress(address: string): { name: string; role: string } {
  const colon = address.lastIndexOf(':');
  return colon < 0 ? { name: address, role: '' } : { name: address.slice(0, colon), role: address.slice(colon + 1) };
}

/** A path that keeps its end when it is too long: the end tells more. */
export function tail(text: string, length: number): string {
  return text.length <= length ? text : '…' + text.slice(text.length - length + 1);
}

/** 4.2 s, 3 min 20 s, 2 h 5 min. */
export function duration(seconds: number): string {
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
