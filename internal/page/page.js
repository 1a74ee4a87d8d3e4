'use strict';
(function () {
  var tip = document.getElementById('tip');
  var shown = null;

  // The browser's own hint comes late, and never by keyboard: its text moves into ours.
  document.querySelectorAll('.lane title').forEach(function (title) {
    var of = title.parentNode;
    of.tip = title.textContent;
    of.setAttribute('aria-label', of.tip);
    if (!of.matches('a')) of.setAttribute('role', 'img');
    title.remove();
  });

  function carrier(node) {
    for (; node && node !== document; node = node.parentNode) if (node.tip) return node;
    return null;
  }

  function show(of) {
    if (!of) return hide();
    shown = of;
    if (tip.textContent !== of.tip) tip.textContent = of.tip;
    tip.hidden = false;
    var box = of.getBoundingClientRect();
    var left = Math.max(box.left, 8), right = Math.min(box.right, innerWidth - 8);
    var x = (left + right) / 2 - tip.offsetWidth / 2;
    tip.style.setProperty('left', Math.max(8, Math.min(x, innerWidth - tip.offsetWidth - 8)) + 'px');
    var y = box.bottom + 8;
    if (y + tip.offsetHeight > innerHeight - 8) y = Math.max(8, box.top - tip.offsetHeight - 8);
    tip.style.setProperty('top', y + 'px');
  }

  function hide() {
    shown = null;
    tip.hidden = true;
  }

  document.addEventListener('pointerover', function (e) { show(carrier(e.target)); });
  document.addEventListener('focusin', function (e) { show(carrier(e.target)); });
  document.addEventListener('focusout', hide);
  document.addEventListener('scroll', function () { if (shown && !shown.matches('.cur')) hide(); }, true);

  // A lane is one stop of the tabulator; within it the arrows go from block to block.
  document.querySelectorAll('svg.lane').forEach(function (lane) {
    var parts = Array.prototype.slice.call(lane.querySelectorAll('g.job, g.held'));
    if (!parts.length) return;
    parts.sort(function (a, b) { return place(a) - place(b); });
    var at = -1;
    lane.setAttribute('tabindex', '0');
    lane.addEventListener('keydown', function (e) {
      var to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: parts.length - 1 }[e.key];
      if (e.target !== lane || to === undefined) return;
      e.preventDefault();
      if (parts[at]) parts[at].classList.remove('cur');
      at = Math.max(0, Math.min(to, parts.length - 1));
      parts[at].classList.add('cur');
      parts[at].scrollIntoView({ block: 'nearest', inline: 'nearest' });
      show(parts[at]);
    });
    lane.addEventListener('blur', function () {
      if (parts[at]) parts[at].classList.remove('cur');
    });
  });

  function place(part) { return parseFloat(part.querySelector('rect').getAttribute('x')); }

  document.addEventListener('keydown', function (e) { if (e.key === 'Escape') hide(); });
})();
