// Replaces the parts of the page that the server has rendered again. The server sends HTML, already escaped.

const main = document.querySelector("main[data-live]");
const light = document.getElementById("light");
const RETRY = 10000; // milliseconds after a refusal

function say(state, text) {
  light.dataset.state = state;
  light.textContent = text;
}

// What a reader has done in a part remains: the focus, and how far tables and logs are scrolled.
function kept(place) {
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const scrolled = [...place.querySelectorAll("[data-scroll]")].map((one) => {
    const end = one.scrollHeight - one.scrollTop - one.clientHeight < 4;
    return { name: one.dataset.scroll, top: one.scrollTop, left: one.scrollLeft, end };
  });
  return { focused, scrolled };
}

function restore(place, { focused, scrolled }) {
  for (const { name, top, left, end } of scrolled) {
    const one = place.querySelector(`[data-scroll="${CSS.escape(name)}"]`);
    if (one) {
      one.scrollLeft = left;
      one.scrollTop = end && one.dataset.follow !== undefined ? one.scrollHeight : top;
    }
  }
  if (focused) {
    place.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
}

function replace({ name, digest, html }) {
  const place = document.getElementById(`part-${name}`);
  if (!place || place.dataset.digest === digest) {
    return;
  }
  const state = kept(place);
  place.innerHTML = html;
  place.dataset.digest = digest;
  restore(place, state);
}

function follow() {
  const source = new EventSource(main.dataset.live);
  source.addEventListener("open", () => say("live", "live"));
  source.addEventListener("fragments", (event) => {
    JSON.parse(event.data).forEach(replace);
    say("live", "live");
  });
  source.addEventListener("gone", () => {
    source.close();
    say("gone", "no longer there");
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) {
      say("away", "not connected");
      setTimeout(follow, RETRY);
    } else {
      say("away", "reconnecting");
    }
  });
  addEventListener("pagehide", () => source.close(), { once: true });
}

document.querySelectorAll("[data-follow]").forEach((one) => {
  one.scrollTop = one.scrollHeight;
});
follow();
