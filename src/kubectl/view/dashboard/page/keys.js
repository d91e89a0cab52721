// Keys of the whole page.

const isTyping = ({ target }) => target.matches('input, select, textarea');

/** `actions`: `search()`, `move(by)`, `back()` and `help()`. */
export function listen({ search, move, back, help }) {
  document.addEventListener('keydown', event => {
    if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
    if (document.querySelector('dialog[open]')) return;
    if (event.key === 'Escape') {
      if (isTyping(event)) event.target.blur();
      else back();
      return;
    }
    if (isTyping(event)) return;
    const actions = { '/': search, '?': help, j: () => move(1), k: () => move(-1) };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
