import assert from "node:assert/strict";
import { test } from "node:test";
import { hubLink, newest, parseReport, problems, siteAt } from "../src/findings";

const cause = { rule: "nan-origin", severity: "error" as const, title: "log of 0 gives -inf", advice: "Clamp it.", step: 3, source: { file: "train.py", line: 7 } };
const effect = { rule: "nonfinite", severity: "error" as const, title: "NaN in the loss", advice: "", source: { file: "train.py", line: 9 }, caused_by: 0 };

test("a consequence stands with its cause", () => {
  const [only, ...rest] = problems({ schema: 1, findings: [cause, effect] });
  assert.deepEqual(rest, []);
  assert.equal(only.line, 7);
  assert.equal(only.message, "log of 0 gives -inf (step 3). Clamp it.");
  assert.deepEqual(only.related, [{ file: "train.py", line: 9, message: "NaN in the loss" }]);
});

test("a finding without a line is no problem of a file", () => {
  assert.deepEqual(problems({ schema: 1, findings: [{ ...cause, source: null }] }), []);
});

test("only reports that this version knows are read", () => {
  assert.equal(parseReport("{"), undefined);
  assert.equal(parseReport('{"schema": 2, "findings": []}'), undefined);
  assert.deepEqual(parseReport('{"schema": 1, "findings": []}')?.findings, []);
});

test("the site under the cursor", () => {
  const line = "        h = self.encoder.fc1(x) + y";
  assert.equal(siteAt(line, line.indexOf("fc1")), "encoder.fc1");
  assert.equal(siteAt(line, line.indexOf("=")), undefined);
  assert.equal(siteAt("fc1:grad", 5), "fc1:grad");
});

test("the newest report", () => {
  assert.equal(newest([{ path: "a", time: 1 }, { path: "b", time: 2 }]), "b");
  assert.equal(newest([]), undefined);
});

test("the link of a hub", () => {
  assert.equal(hubLink('{"url": "http://127.0.0.1:8", "token": "a b"}'), "http://127.0.0.1:8/?token=a%20b");
  assert.equal(hubLink("{}"), undefined);
});
