/** Findings of a report as problems of an editor. Knows nothing of VS Code, so that it can be tested without it. */

export interface Source { file: string; line: number; code?: string }
export interface Finding {
  rule: string; severity: "error" | "warning" | "info"; title: string; advice: string;
  step?: number | null; source?: Source | null; caused_by?: number | null;
}
export interface Report { schema: number; findings: Finding[] }
export interface Problem { file: string; line: number; severity: Finding["severity"]; message: string; code: string; related: { file: string; line: number; message: string }[] }

export const SCHEMA = 1;

/** The report in a text; undefined where it is none that this version reads. */
export function parseReport(text: string): Report | undefined {
  try {
    const found = JSON.parse(text) as Report;
    return found.schema === SCHEMA && Array.isArray(found.findings) ? found : undefined;
  } catch {
    return undefined;
  }
}

/** One problem for each finding that has a line and is no consequence; what follows from it stands with it. */
export function problems(report: Report): Problem[] {
  return report.findings.flatMap((finding, k) => {
    if (!finding.source || (finding.caused_by !== undefined && finding.caused_by !== null)) return [];
    const related = report.findings
      .filter((other) => other.caused_by === k && other.source)
      .map((other) => ({ file: other.source!.file, line: other.source!.line, message: other.title }));
    const step = finding.step === undefined || finding.step === null ? "" : ` (step ${finding.step})`;
    return [{ file: finding.source.file, line: finding.source.line, severity: finding.severity, message: `${finding.title}${step}. ${finding.advice}`, code: finding.rule, related }];
  });
}

/** The name under the cursor that may be a site: dotted, with an optional role. `self.` is the module's own. */
export function siteAt(line: string, column: number): string | undefined {
  for (const found of line.matchAll(/[A-Za-z_][\w.]*(:\w+)?/g)) {
    if (found.index <= column && column < found.index + found[0].length) {
      return found[0].replace(/^self\./, "").replace(/\.$/, "") || undefined;
    }
  }
  return undefined;
}

/** The newest of some runs, by the time of their reports. */
export function newest(reports: { path: string; time: number }[]): string | undefined {
  return [...reports].sort((a, b) => b.time - a.time || (a.path < b.path ? 1 : -1))[0]?.path;
}

/** The address of a hub's page in the note that a hub leaves for its user. */
export function hubLink(note: string): string | undefined {
  try {
    const { url, token } = JSON.parse(note) as { url?: unknown; token?: unknown };
    return typeof url === "string" && typeof token === "string" ? `${url}/?token=${encodeURIComponent(token)}` : undefined;
  } catch {
    return undefined;
  }
}
