// console.js: keys, times and small comforts of the console. Every page works
// without it. It never sends data by itself: a single key moves, opens or
// focuses; only Ctrl+Enter and a real button submit.
//
// What a page writes to take part:
//   tr/li [data-row] inside [data-rows]   a row of the list; its first link opens it; give it an id
//   [data-search]                         the field that / focuses
//   [data-key="x"]                        x follows a link, or chooses a submit button (see choose)
//   [data-focus="id"] on such a button    the note that x focuses
//   a[data-back]                          where Esc leads
//   a[data-jump="q"]                      where g then q leads
//   time[data-ago]                        counted on: "2 min ago"
//   [data-until="RFC 3339"]               counted down; fires "elapsed" once at zero
//   [data-undo]                           at "elapsed" inside it, data-undo-wait hides and data-undo-sent shows
//   [data-stale-at="RFC 3339"]            from then on "no data" (data-stale-text replaces its text)
//   input[type=checkbox][data-range]      Shift selects the rows in between
//   input[data-check-all]                 checks every data-range box of its form
//   [data-selected]                       shows how many are checked in its form
//   button[data-needs-selection]          disabled while none is checked
//   form[data-autosubmit]                 submitted when a select in it changes

const root = document.documentElement;
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

// ---- time ----

// The page counts from the server's clock, so that a wrong clock on this
// machine does not make figures look fresh.
const skew = Date.parse(root.dataset.now) - Date.now() || 0;
const serverNow = () => Date.now() + skew;
const forms = JSON.parse(root.dataset.ago || '{}');
const units = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];

function distance(instant) {
  const seconds = (serverNow() - instant) / 1000;
  const size = Math.abs(seconds);
  const unit = units.find(([length]) => size >= length);
  if (!unit) return forms.now;
  return forms[(seconds < 0 ? 'in_' : 'ago_') + unit[1]].replace('N', Math.floor(size / unit[0]));
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tick() {
  for (const time of $$('time[data-ago]')) write(time, distance(Date.parse(time.dateTime)));
  for (const element of $$('[data-until]')) countDown(element);
  for (const element of $$('[data-stale-at]')) {
    if (serverNow() < Date.parse(element.dataset.staleAt)) continue;
    element.classList.add('nodata');
    if (element.dataset.staleText) write(element, element.dataset.staleText);
  }
}

function countDown(element) {
  const left = Math.ceil((Date.parse(element.dataset.until) - serverNow()) / 1000);
  if (left > 120) write(element, distance(Date.parse(element.dataset.until)));
  else write(element, left > 0 ? forms.in_s.replace('N', left) : forms.now);
  if (left > 0 || element.dataset.elapsed === element.dataset.until) return;
  element.dataset.elapsed = element.dataset.until;
  element.dispatchEvent(new CustomEvent('elapsed', { bubbles: true }));
}

document.addEventListener('elapsed', (event) => {
  const undo = event.target.closest('[data-undo]');
  if (!undo) return;
  for (const part of $$('[data-undo-wait]', undo)) part.hidden = true;
  for (const part of $$('[data-undo-sent]', undo)) part.hidden = false;
});

// ---- list cursor ----

const place = 'cursor:' + location.pathname + location.search;
let cursorID = '';

const rows = () => $$('[data-rows] [data-row]').filter((row) => row.offsetParent !== null);

function setCursor(row, focus = true) {
  for (const other of $$('.cursor')) if (other !== row) other.classList.remove('cursor');
  if (!row) return;
  row.classList.add('cursor');
  cursorID = row.id;
  sessionStorage.setItem(place, cursorID);
  if (!focus) return;
  ($('a[href], button, summary', row) || row).focus({ preventScroll: true });
  row.scrollIntoView({ block: 'nearest' });
}

function move(step) {
  const list = rows();
  if (!list.length) return false;
  const at = list.findIndex((row) => row.classList.contains('cursor'));
  const next = at < 0 ? (step > 0 ? 0 : list.length - 1) : Math.min(Math.max(at + step, 0), list.length - 1);
  setCursor(list[next]);
  return true;
}

function restoreCursor() {
  const [navigation] = performance.getEntriesByType('navigation');
  const id = sessionStorage.getItem(place);
  if (navigation?.type === 'back_forward' && id) setCursor(document.getElementById(id));
}

// ---- keys ----

const editable = (element) => element?.closest('input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]');
let awaitingJump = 0;

// choose makes button the one that Ctrl+Enter will press, and focuses the note
// beside it. It never presses it.
function choose(button) {
  for (const other of $$('[data-chosen]')) delete other.dataset.chosen;
  button.dataset.chosen = '';
  const details = button.closest('details');
  if (details) details.open = true;
  (document.getElementById(button.dataset.focus) || button).focus();
}

function pressKey(key) {
  const element = $$(`[data-key="${CSS.escape(key)}"]`).find((e) => e.offsetParent !== null && !e.disabled);
  if (!element) return false;
  if (element.matches('a[href]')) element.click();
  else if (element.matches('summary')) element.parentElement.open = true;
  else choose(element);
  return true;
}

function jump(key) {
  awaitingJump = 0;
  const link = $(`a[data-jump="${CSS.escape(key)}"]`);
  link?.click();
  return Boolean(link);
}

function openRow(event) {
  const row = $('[data-row].cursor');
  if (!row || event.target.closest('a, button, summary, input')) return false;
  $('a[href]', row)?.click();
  return true;
}

function search() {
  const field = $('[data-search]');
  field?.focus();
  field?.select?.();
  return Boolean(field);
}

function help() {
  const dialog = $('#keys');
  dialog?.showModal();
  return Boolean(dialog);
}

const actions = {
  j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
  Enter: openRow, '/': search, '?': help,
  g: () => { awaitingJump = Date.now(); return true; },
};

function back(event) {
  const menu = $('details.menu[open]');
  if (menu) { menu.open = false; $('summary', menu).focus(); return true; }
  if (editable(event.target)) { event.target.blur(); return true; }
  const link = $('a[data-back]');
  link?.click();
  return Boolean(link);
}

function commit(event) {
  const form = event.target.closest('form') || $('[data-chosen]')?.closest('form');
  if (!form) return false;
  const button = $('[data-chosen]', form) || $('button[type=submit]:not(:disabled)', form);
  form.requestSubmit(button && button.form === form ? button : undefined);
  return true;
}

function handleKey(event) {
  if (event.defaultPrevented || event.isComposing || event.altKey || event.metaKey) return false;
  if (event.key === 'Enter' && event.ctrlKey) return commit(event);
  if (event.ctrlKey || $('dialog[open]')) return false;
  if (event.key === 'Escape') return back(event);
  if (root.dataset.keys !== 'on' || editable(event.target)) return false;
  if (Date.now() - awaitingJump < 1500) return jump(event.key);
  return pressKey(event.key) || Boolean(actions[event.key]?.(event));
}

document.addEventListener('keydown', (event) => { if (handleKey(event)) event.preventDefault(); });
document.addEventListener('focusin', (event) => {
  const row = event.target.closest('[data-rows] [data-row]');
  if (row) setCursor(row, false);
});

// ---- forms ----

let lastBox = null;

function countSelected(form) {
  if (!form) return;
  const checked = $$('input[data-range]:checked', form).length;
  for (const place of $$('[data-selected]', form)) write(place, String(checked));
  for (const button of $$('button[data-needs-selection]', form)) button.disabled = checked === 0;
}

document.addEventListener('click', (event) => {
  const box = event.target.closest('input[type=checkbox][data-range]');
  if (box) {
    if (event.shiftKey && lastBox?.form === box.form) {
      const boxes = $$('input[data-range]', box.form);
      const [from, to] = [boxes.indexOf(lastBox), boxes.indexOf(box)].sort((a, b) => a - b);
      for (const between of boxes.slice(from, to + 1)) between.checked = box.checked;
    }
    lastBox = box;
  }
  for (const menu of $$('details.menu[open]')) if (!menu.contains(event.target)) menu.open = false;
});

document.addEventListener('change', (event) => {
  const { target } = event;
  if (target.matches('input[data-check-all]')) {
    for (const box of $$('input[data-range]', target.form || document)) box.checked = target.checked;
  }
  for (const form of new Set([target.form, ...$$('input[data-range]').map((box) => box.form)])) countSelected(form);
  if (target.matches('select') && target.form?.matches('[data-autosubmit]')) target.form.requestSubmit();
});

// ---- live ----

function live(state) {
  const element = $('#live');
  if (!element?.dataset.lost || (element.dataset.state || 'on') === state) return;
  element.dataset.state = state;
  if (state === 'lost') element.textContent = element.dataset.lost;
}

document.addEventListener('htmx:sse:error', (event) => {
  const status = event.detail?.status;
  if (status === 401 || status === 403) location.reload();
  else live('lost');
});
document.addEventListener('htmx:sse:after:message', () => live('on'));
document.addEventListener('signed-out', () => location.reload());

function dress() {
  tick();
  if (cursorID) setCursor(document.getElementById(cursorID), false);
  for (const form of new Set($$('input[data-range]').map((box) => box.form))) countSelected(form);
  for (const form of $$('form[data-autosubmit]')) for (const button of $$('button[type=submit]', form)) button.hidden = true;
}

document.addEventListener('htmx:after:swap', dress);
dress();
restoreCursor();
setInterval(tick, 1000);

// ---- desk: the undo of a release ----

// When the time to undo is over, the button goes and "Releasing…" stays until
// the server says what became of it.
document.addEventListener('elapsed', (event) => {
  const undo = event.target.closest('[data-undo]');
  if (!undo) return;
  for (const part of $$('[data-undo-wait]', undo)) part.hidden = true;
  $('[data-undo-sent]', undo).hidden = false;
});
