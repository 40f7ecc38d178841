'use strict';
(() => {
  let data, nodes;
  function readData(text) {
    data = JSON.parse(text);
    nodes = new Map((data.nodes || []).map((n) => [n.rank, n]));
  }
  readData(document.getElementById('data').textContent);
  const drawer = document.getElementById('drawer');
  const root = document.documentElement;

  // el makes an element. Text stays text, whatever it says.
  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    made.append(...children.filter((c) => c !== null && c !== undefined && c !== ''));
    return made;
  }

  document.getElementById('theme').addEventListener('click', () => {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
  });

  const box = (label, text) => el('pre', { tabindex: 0, role: 'group', 'aria-label': label }, el('code', {}, text));
  const nameOf = (n) => (n.host ? n.host : 'node ' + n.rank);

  function lanes(n) {
    const rows = (n.lanes || []).map(([phase, cls, left, width, from, took, ms]) => {
      const bar = el('i', { class: cls });
      bar.style.left = left + '%';
      bar.style.width = width + '%';
      const median = data.p50[phase];
      const times = median > 0 && ms > 2 * median && ms > median + 100 ? (ms / median).toFixed(1) + '× the median' : '';
      return el('tr', {}, el('td', {}, phase), el('td', { class: 'wide' }, el('div', { class: 'lane' }, bar)),
        el('td', { class: 'n' }, from), el('td', { class: 'n' }, took),
        el('td', { class: times ? 'mind' : / failed/.test(cls) ? 'bad' : 'mute' }, / failed/.test(cls) ? 'failed' : / open/.test(cls) ? 'no end' : / cut/.test(cls) ? 'cut short' : times));
    });
    if (!rows.length) return el('p', { class: 'mute' }, 'It has no recorded timeline.');
    const head = el('tr', {}, ...['phase', '', 'from', 'took', ''].map((h, i) => el('th', i === 2 || i === 3 ? { class: 'n' } : {}, h)));
    return el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'phases' }, el('table', { class: 'lanes' }, el('thead', {}, head), el('tbody', {}, ...rows)));
  }

  function list(heading, lines) {
    if (!lines || !lines.length) return null;
    return el('div', {}, el('h3', {}, heading), el('ul', {}, ...lines.map((line) => el('li', {}, line))));
  }

  function words(n) {
    const parts = [];
    for (const f of n.failures || []) {
      parts.push(el('p', {}, el('b', { class: 'bad' }, '✕ ' + f.kind), ' ' + f.what));
      if (f.lines && f.lines.length) parts.push(box('its last lines', f.lines.join('\n')));
    }
    const logs = (n.logs || []).map((name) => [name, [...document.querySelectorAll('[data-log]')].find((p) => p.dataset.log === name)]).filter(([, pre]) => pre);
    logs.forEach(([name, pre], i) => {
      const log = el('details', { class: 'log' }, el('summary', {}, el('span', { class: 'mono' }, 'logs/' + name)), box('logs/' + name, pre.textContent || '(empty)'));
      log.open = i === 0;
      parts.push(log);
    });
    if (!logs.length) parts.push(el('p', { class: 'mute' }, 'Its logs are not in this page: see logs/ in the run directory.'));
    return parts;
  }

  let shown = null;
  let from = null; // what had the focus

  function marks(rank) {
    for (const item of document.querySelectorAll('.row[data-rank], .map [data-rank]')) {
      const is = rank !== null && item.dataset.rank === String(rank);
      if (is || item.getAttribute('aria-expanded') === 'true') item.setAttribute('aria-expanded', is);
    }
  }

  function show(rank) {
    const n = nodes.get(rank);
    if (!n) return;
    shown = rank;
    const close = el('button', { type: 'button', 'aria-label': 'close' }, '✕ close');
    close.addEventListener('click', hide);
    const bar = el('div', { class: 'bar' }, el('h2', {}, nameOf(n)), n.host ? el('span', { class: 'mute' }, 'node ' + n.rank) : '',
      el('b', { class: n.tone }, n.state), n.ready ? el('span', { class: 'mute' }, 'ready after ' + n.ready) : '',
      el('span', { class: 'push' }), close);
    const facts = el('dl', { class: 'config' }, ...(n.facts || []).flatMap((f) => [el('dt', {}, f.name), el('dd', {}, f.value)]));
    drawer.replaceChildren(el('div', { class: 'inner' }, bar, el('div', { class: 'cols' },
      el('div', {}, lanes(n), list('Checks that did not pass', n.checks), list('Events', n.befell), el('h3', {}, 'The node'), facts),
      el('div', {}, ...words(n)))));
    drawer.hidden = false;
    drawer.scrollTop = 0;
    document.body.classList.add('drawn');
    marks(rank);
  }

  function hide() {
    shown = null;
    drawer.hidden = true;
    document.body.classList.remove('drawn');
    marks(null);
    if (from && from.isConnected) from.focus();
  }

  function toggle(item) {
    from = item;
    const rank = Number(item.dataset.rank);
    if (shown === rank) hide(); else { show(rank); item.scrollIntoView({ block: 'nearest' }); }
  }

  document.addEventListener('click', (event) => {
    const item = event.target.closest('[data-rank]');
    if (item) toggle(item);
  });

  // move takes the focus to another item of its group; what is shown follows.
  function move(item, items, to) {
    const next = items[Math.max(0, Math.min(items.length - 1, to))];
    if (next === item) return;
    item.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    if (shown !== null) { from = next; show(Number(next.dataset.rank)); next.scrollIntoView({ block: 'nearest' }); }
  }

  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && shown !== null) { hide(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const item = event.target.closest('.row[data-rank], .map [data-rank]');
    if (!item) return;
    const inMap = item.parentElement.id === 'map';
    const items = [...item.parentElement.querySelectorAll('[data-rank]')];
    const at = items.indexOf(item);
    const line = inMap ? Math.max(1, items.filter((i) => i.offsetTop === items[0].offsetTop).length) : 1;
    const steps = { ArrowDown: line, ArrowUp: -line, Home: -at, End: items.length - 1 - at };
    if (inMap) Object.assign(steps, { ArrowRight: 1, ArrowLeft: -1 });
    if (event.key in steps) move(item, items, at + steps[event.key]);
    else if (!inMap && (event.key === 'Enter' || event.key === ' ')) toggle(item);
    else return;
    event.preventDefault();
  });

  // The page of a server reloads its content while the run goes on. What is open stays open.
  const live = document.getElementById('live');
  let tag = '';

  function replaceContent(next) {
    const main = document.querySelector('main');
    const keyOf = (d) => (d.querySelector('summary') || d).textContent;
    const open = new Map([...main.querySelectorAll('details')].map((d) => [keyOf(d), d.open]));
    const focused = document.activeElement && document.activeElement.dataset.rank;
    const isRow = document.activeElement && document.activeElement.classList.contains('row');
    const scrolled = new Map([...main.querySelectorAll('pre[data-log]')].map((p) => [p.dataset.log, p.scrollTop]));
    main.replaceChildren(...document.importNode(next.querySelector('main'), true).childNodes);
    for (const d of main.querySelectorAll('details')) if (open.has(keyOf(d))) d.open = open.get(keyOf(d));
    for (const p of main.querySelectorAll('pre[data-log]')) p.scrollTop = scrolled.get(p.dataset.log) || 0; // from its end
    readData(next.getElementById('data').textContent);
    document.title = next.title;
    document.getElementById('made').textContent = next.getElementById('made').textContent;
    if (shown !== null) {
      const top = drawer.scrollTop;
      show(shown);
      drawer.scrollTop = top;
    }
    const again = focused && main.querySelector((isRow ? '.row' : '') + '[data-rank="' + focused + '"]');
    if (again) { again.tabIndex = 0; again.focus({ preventScroll: true }); }
  }

  async function reload() {
    try {
      const answer = await fetch(location.pathname, { cache: 'no-store', headers: tag ? { 'If-None-Match': tag } : {} });
      if (answer.status === 200 && !String(getSelection())) { // a selected text stays until it is copied
        tag = answer.headers.get('ETag') || '';
        const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
        replaceContent(next);
        root.dataset.reload = next.documentElement.dataset.reload || 0;
      }
      live.textContent = answer.ok || answer.status === 304 ? '● live' : '○ the run cannot be read';
      if (Number(root.dataset.reload) === 0) live.textContent = 'the run is over';
    } catch {
      live.textContent = '○ no connection: has bringupd status --serve ended?';
    }
    follow();
  }

  function follow() {
    const pause = Number(root.dataset.reload || 0);
    if (pause > 0) setTimeout(reload, document.hidden ? 10 * pause : pause);
  }
  if (root.dataset.reload) live.textContent = '● live';
  follow();
})();
