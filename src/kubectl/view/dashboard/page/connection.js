// The stream of events from `kubectl divvy dashboard`.

const KINDS = ['hello', 'nodes', 'pods', 'status'];
/** EventSource reconnects unless the answer was an error; then it is up to us, after this many ms. */
const RETRY = 3000;

/** Calls `receive(kind, message)` for every message, and `tell(state)` with `open` or `lost`. */
export function connect(receive, tell) {
  const source = new EventSource('events');
  source.addEventListener('open', () => tell('open'));
  for (const kind of KINDS) {
    source.addEventListener(kind, event => receive(kind, JSON.parse(event.data)));
  }
  source.addEventListener('error', () => {
    tell('lost');
    if (source.readyState !== EventSource.CLOSED) return;
    source.close();
    setTimeout(() => connect(receive, tell), RETRY);
  });
}

/** A JSON document of the server; throws with the server's words for an error. */
export async function ask(path, parameters, signal) {
  const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { signal, cache: 'no-store' });
  const document = await answer.json().catch(() => undefined);
  if (!answer.ok) throw new Error(document?.error ?? `${answer.status} ${answer.statusText}`);
  if (!document) throw new Error('the answer is no JSON document');
  return document;
}
