/** Puts findings, the debug adapter, hovers and the hub's page into VS Code. */

import { existsSync, readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import * as vscode from "vscode";
import { hubLink, newest, parseReport, problems, siteAt, type Problem } from "./findings";

const TYPE = "tensonde";
const SEVERITIES = { error: vscode.DiagnosticSeverity.Error, warning: vscode.DiagnosticSeverity.Warning, info: vscode.DiagnosticSeverity.Information };

export function activate(context: vscode.ExtensionContext): void {
  const shown = vscode.languages.createDiagnosticCollection(TYPE);
  const watcher = vscode.workspace.createFileSystemWatcher("**/.tensonde/runs/*/report.json");
  const refresh = () => void show(shown);
  context.subscriptions.push(
    shown, watcher, watcher.onDidCreate(refresh), watcher.onDidChange(refresh), watcher.onDidDelete(refresh),
    vscode.debug.registerDebugAdapterDescriptorFactory(TYPE, { createDebugAdapterDescriptor: adapter }),
    vscode.debug.registerDebugConfigurationProvider(TYPE, { resolveDebugConfiguration: resolved }),
    vscode.languages.registerHoverProvider("python", { provideHover: hover }),
    vscode.commands.registerCommand("tensonde.openHub", openHub),
  );
  refresh();
}

function adapter(): vscode.DebugAdapterDescriptor {
  const command = vscode.workspace.getConfiguration(TYPE).get<string>("command", TYPE);
  return new vscode.DebugAdapterExecutable(command, ["dap"]);
}

/** F5 in a script without a launch.json. */
function resolved(folder: vscode.WorkspaceFolder | undefined, given: vscode.DebugConfiguration): vscode.DebugConfiguration | undefined {
  if (given.type) return given;
  const file = vscode.window.activeTextEditor?.document;
  if (file?.languageId !== "python") return undefined;
  return { type: TYPE, request: "launch", name: "Tensonde", program: file.fileName, cwd: folder?.uri.fsPath };
}

/** The findings of the newest run of each folder. */
async function show(shown: vscode.DiagnosticCollection): Promise<void> {
  const found = new Map<string, vscode.Diagnostic[]>();
  for (const folder of vscode.workspace.workspaceFolders ?? []) {
    const files = await vscode.workspace.findFiles(new vscode.RelativePattern(folder, ".tensonde/runs/*/report.json"), null);
    const path = newest(files.filter((uri) => existsSync(uri.fsPath)).map((uri) => ({ path: uri.fsPath, time: statSync(uri.fsPath).mtimeMs })));
    const report = path === undefined ? undefined : parseReport(readFileSync(path, "utf8"));
    for (const problem of report ? problems(report) : []) {
      const file = absolute(folder, problem.file);
      found.set(file, [...(found.get(file) ?? []), diagnostic(folder, problem)]);
    }
  }
  shown.clear();
  for (const [file, all] of found) shown.set(vscode.Uri.file(file), all);
}

function absolute(folder: vscode.WorkspaceFolder, file: string): string {
  return isAbsolute(file) ? file : join(folder.uri.fsPath, file);
}

function diagnostic(folder: vscode.WorkspaceFolder, problem: Problem): vscode.Diagnostic {
  const made = new vscode.Diagnostic(wholeLine(problem.line), problem.message, SEVERITIES[problem.severity]);
  made.source = "Tensonde";
  made.code = problem.code;
  made.relatedInformation = problem.related.map(
    (one) => new vscode.DiagnosticRelatedInformation(new vscode.Location(vscode.Uri.file(absolute(folder, one.file)), wholeLine(one.line)), one.message),
  );
  return made;
}

function wholeLine(line: number): vscode.Range {
  return new vscode.Range(line - 1, 0, line - 1, Number.MAX_SAFE_INTEGER);
}

/** At a stop: the statistics of the site under the cursor. */
async function hover(document: vscode.TextDocument, position: vscode.Position): Promise<vscode.Hover | undefined> {
  const session = vscode.debug.activeDebugSession;
  const site = siteAt(document.lineAt(position.line).text, position.character);
  if (session?.type !== TYPE || site === undefined) return undefined;
  try {
    const answer = (await session.customRequest("evaluate", { expression: site, context: "hover" })) as { result: string; type?: string };
    return answer.type === "tensor" ? new vscode.Hover(`**${site}** ${answer.result}`) : undefined;
  } catch {
    return undefined; // it runs, or that is no site
  }
}

function openHub(): void {
  const folders = [process.env.XDG_RUNTIME_DIR, process.env.XDG_CACHE_HOME, join(homedir(), ".cache")];
  const note = folders.filter((folder) => folder !== undefined).map((folder) => join(folder, "tensonde", "hub.json")).find((file) => existsSync(file));
  const link = note === undefined ? undefined : hubLink(readFileSync(note, "utf8"));
  if (link === undefined) void vscode.window.showInformationMessage("No hub runs; start one with `tensonde ui`, or a training with `tensonde run --ui`.");
  else void vscode.env.openExternal(vscode.Uri.parse(link));
}
