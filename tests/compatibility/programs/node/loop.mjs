// The loop of a Node.js program: one JSON request per line of standard input, one answer per line of standard output.
import { readFileSync } from "node:fs";
import readline from "node:readline";

export class Unsupported extends Error {}

export const data = (text) => (text === null || text === undefined ? null : Buffer.from(text, "base64"));
export const text = (found) => (found === null || found === undefined ? null : Buffer.from(found).toString("base64"));

// How the brokers are reached: undefined, without TLS, when the environment names no file of trusted authorities.
const trust = process.env.OTTLA_TRUST;
export const tls = trust ? { ca: [readFileSync(trust, "utf-8")] } : undefined;

// How it authenticates: OTTLA_SASL="MECHANISM USER PASSWORD"; undefined without it.
const [mechanism, username, password] = (process.env.OTTLA_SASL ?? "").split(" ");
export const sasl = mechanism ? { mechanism, username, password } : undefined;

export async function serve(operations) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, ...request } = JSON.parse(line);
    let answer;
    try {
      if (!(op in operations)) throw new Unsupported("the client has no such interface");
      answer = { ok: (await operations[op](request)) ?? {} };
    } catch (error) {
      if (error instanceof Unsupported) answer = { unsupported: error.message };
      else {
        console.error(error);
        answer = { error: describe(error) };
      }
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  process.exit(0);
}

function describe(error) {
  const causes = [...(error.errors ?? []), error.cause].filter(Boolean);
  return [`${error.type ?? error.code ?? error.name}: ${error.message}`, ...causes.map(describe)].join(" < ");
}
