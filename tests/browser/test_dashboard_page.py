"""The dashboard in a headless Chromium: it lives, has no console errors, and can be read and used by everyone.

`make test-dashboard` runs it and keeps the screenshots in build/dashboard. Root's apt-get installs a missing Chromium.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from chromium import Tab, chromium, needed_browser
from dashboard_scene import DEADLINE, Dashboard, dashboard, wait_until, write_objects
from local_scene import Scene

SHOTS = Path(__file__).parents[2] / "build" / "dashboard"
PAGES = {
    "searches": "/",
    "search": "/searches/default/digits",
    "trial": "/trials/default/digits-3",
    "gpus": "/gpus",
    "what-if": "/what-if/default/digits",
}
LOOKS = {"light": (1180, False), "dark": (1180, True), "narrow": (390, False)}
EVIL = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"

# the least contrast of all texts against the colour behind them, by the formula of WCAG 2
CONTRAST = """(() => {
  const parse = (text) => { const n = text.match(/[0-9.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const linear = (c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (rgb) => rgb.slice(0, 3).map((c) => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => { for (; one; one = one.parentElement) {
    const c = parse(getComputedStyle(one).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  let worst = { ratio: 21, text: "" };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim(), one = walk.currentNode.parentElement;
    if (!text || !one.getClientRects().length || one.closest("title, .on")) continue;
    const style = getComputedStyle(one);
    const a = light(parse(one.closest("svg") ? style.fill : style.color)), b = light(behind(one));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst.ratio) worst = { ratio, text: text.slice(0, 60) };
  }
  return worst;
})()"""


def in_browser(shown: Dashboard, tmp_path: Path, work: Callable[[Tab], Awaitable[None]]) -> None:
    """Open the printed address in a browser, do the work, and check the console and the network."""

    program = needed_browser()

    async def browse() -> None:
        async with asyncio.timeout(DEADLINE), chromium(program, tmp_path / "profile") as tab:
            await tab.look(width=1180, height=900, dark=False)
            await tab.go(f"{shown.base}/?token={shown.token}")
            await work(tab)
            assert tab.errors == []
            assert {url for url in tab.requests if not url.startswith(shown.base + "/")} <= {"about:blank"}

    asyncio.run(browse())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    write_objects(folder, 100.0)
    return folder


def test_every_page_in_light_dark_and_narrow(saved: Path, tmp_path: Path) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)

    async def work(tab: Tab) -> None:
        for name, path in PAGES.items():
            for look, (width, dark) in LOOKS.items():
                await tab.look(width=width, height=900, dark=dark)
                await tab.go(shown.base + path)
                if name == "search":
                    await tab.wait("!document.body.textContent.includes('It is being computed')", DEADLINE)
                assert await tab.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is too wide"
                worst = await tab.evaluate(CONTRAST)
                assert worst["ratio"] >= 4.5, f"{name}, {look}: {worst}"
                height = await tab.evaluate("document.documentElement.scrollHeight")
                await tab.look(width=width, height=min(height, 4000), dark=dark)
                await asyncio.to_thread((SHOTS / f"{name}-{look}.png").write_bytes, await tab.screenshot())

    with dashboard(str(saved)) as shown:
        in_browser(shown, tmp_path, work)


def test_a_running_search_grows_on_the_page_without_a_reload(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("--pause=1.0", "--steps=1000", checkpoint=False, trials={"max": 2, "parallel": 2, "maxSteps": 1000})
    best = "document.querySelector('#best-value')?.textContent"

    async def work(tab: Tab) -> None:
        await tab.go(shown.base + "/searches/default/tiny")
        await tab.evaluate("window.same = true")
        first = await tab.wait(best, DEADLINE)
        await tab.wait(f"{best} !== {first!r}", DEADLINE)
        await tab.wait("!!document.querySelector('#part-curves .curve')", DEADLINE)
        curve = await tab.evaluate("document.querySelector('#part-curves .curve').getAttribute('d').length")
        grows = f"document.querySelector('#part-curves .curve').getAttribute('d').length > {curve}"
        await tab.wait(grows, DEADLINE)
        assert await tab.evaluate("window.same"), "the page was loaded again"

    with scene.running("--cpus", "2"):
        wait_until((scene.run_folder / "objects" / "trial-0.json").exists, "a trial is stored")
        with dashboard(str(tmp_path / "podium-runs")) as shown:
            in_browser(shown, tmp_path, work)


def test_everything_can_be_reached_by_the_keyboard_and_the_focus_survives_a_change(saved: Path, tmp_path: Path) -> None:
    focused = "document.activeElement.getAttribute('href')"

    async def work(tab: Tab) -> None:
        await tab.go(shown.base + "/searches/default/digits")
        reached = []
        for _ in range(40):
            await tab.key("Tab", 9)
            reached.append(await tab.evaluate(focused))
        assert {"#content", "/", "/gpus"} <= set(reached)
        assert {f"/trials/default/digits-{number}" for number in range(12)} <= set(reached)
        await tab.evaluate("document.querySelector('#part-trials a').focus()")
        before = await tab.evaluate(focused)
        changed = {"digits-9": {"status": {"message": "changed"}}, "digits-7": {"status": {"message": "changed"}}}
        write_objects(saved, 100.0, changed)
        await tab.wait("document.querySelector('#part-trials').textContent.includes('changed')", DEADLINE)
        assert await tab.evaluate(focused) == before

    with dashboard(str(saved)) as shown:
        in_browser(shown, tmp_path, work)


def test_a_replay_is_started_by_the_keyboard_and_its_result_appears_without_a_reload(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    write_objects(ended, 600.0)
    start = "document.querySelector('#part-whatif form button')"

    async def work(tab: Tab) -> None:
        await tab.go(shown.base + "/searches/default/digits")
        await tab.evaluate("document.querySelector('a[href^=\"/what-if/\"]').click()")
        await tab.wait(f"location.pathname === '/what-if/default/digits' && !!{start}", DEADLINE)
        await tab.wait("!!document.querySelector('#light[data-state=live]')", DEADLINE)
        await tab.evaluate(f"{start}.focus()")
        await tab.key("Enter", 13)
        await tab.wait("document.body?.textContent.includes('What the default saved')", DEADLINE)
        await tab.wait("!!document.querySelector('#light[data-state=live]')", DEADLINE)
        text = await tab.evaluate("document.body.textContent")
        assert "envelope" in text
        assert "What is not known" in text
        assert await tab.evaluate("location.pathname") == "/what-if/default/digits"
        for look, (width, dark) in LOOKS.items():
            await tab.look(width=width, height=1400, dark=dark)
            assert await tab.evaluate("document.documentElement.scrollWidth") <= width
            worst = await tab.evaluate(CONTRAST)
            assert worst["ratio"] >= 4.5, worst
            SHOTS.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread((SHOTS / f"replay-{look}.png").write_bytes, await tab.screenshot())

    with dashboard(str(ended)) as shown:
        in_browser(shown, tmp_path, work)


def test_hostile_text_is_text_in_a_real_browser(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    changes = {
        "digits": {"status": {"message": EVIL}, "spec": {"objective": {"metric": EVIL}}},
        "digits-3": {"spec": {"parameters": {EVIL: EVIL}}, "status": {"message": EVIL, "reason": EVIL}},
    }
    write_objects(folder, 90.0, changes)

    async def work(tab: Tab) -> None:
        for path in PAGES.values():
            await tab.go(shown.base + path)
            assert "hit" not in await tab.evaluate("document.title")
            assert await tab.evaluate("document.querySelectorAll('img').length") == 0
        await tab.go(shown.base + "/trials/default/digits-3")
        write_objects(folder, 100.0, {**changes, "digits-3": {"status": {"message": EVIL + " later"}}})
        await tab.wait("document.body.textContent.includes('later')", DEADLINE)
        assert "hit" not in await tab.evaluate("document.title")
        assert await tab.evaluate("document.querySelectorAll('img').length") == 0

    with dashboard(str(folder)) as shown:
        in_browser(shown, tmp_path, work)
