"""The guided tour and the five takeaways: words, frames and runs go together."""

import re

import numpy as np
import pytest

SMALL = "#T=4&d=6&M=2&relevant=2&n=20&nTest=20&nFresh=20&numSteps=30"
# what each stop speaks of, and so what it frames
FRAMED = [
    ["maps"],
    ["lossChart", "focusChart", "maps"],
    ["lossChart", "focusChart"],
    ["focusChart"],
    ["verdicts"],
    ["verdicts"],
    ["lossChart"],
    ["focusChart"],
]
WORDS = {"maps": "map", "lossChart": "loss", "focusChart": "attention", "verdicts": "Theorem 1"}
SHORTEN = """() => { for (const [k, steps] of [[1, 60], [2, 60], [3, 150], [4, 60], [6, 30], [7, 60]]) for (const plan of [explorer.stops[k].settings, explorer.stops[k].pin]) {
  if (plan) Object.assign(plan, { n: 12, nTest: plan.nTest === 0 ? 0 : 12, numSteps: steps });
} }"""
# a framed panel that can be seen: inside the window, above or beside the card, below the bar that sticks to the top
SEEN = """(name) => { const box = (e) => e.getBoundingClientRect(), panel = box(document.querySelector(`#${name}`)), card = box(document.querySelector('#tour'));
  const node = document.querySelector(`#${name} canvas, #${name} h4`), it = box(node), beside = it.right <= card.left + 1 || it.left >= card.right - 1;
  return it.top >= 0 && it.bottom <= innerHeight + 1 && (beside || it.bottom <= card.top + 1) && panel.top >= 0; }"""


def end_of_stop(tab, place):
    tab.until(f"explorer.app.tour.at === {place} && explorer.app.tour.done")


def test_each_stop_sets_what_it_speaks_of_and_frames_it_alone(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEN)
    desk.page.click("#startTour")
    titles = []
    for place, framed in enumerate(FRAMED):
        end_of_stop(desk, place)
        titles.append(desk.text("#tour h3"))
        assert sorted(desk.ask("[...document.querySelectorAll('.pointed')].map((e) => e.id)")) == sorted(framed)
        words = desk.text("#tour")
        assert all(WORDS[name] in words for name in framed), words
        assert all(desk.page.evaluate(SEEN, name) for name in framed), f"stop {place + 1}"
        if place == 4:  # silent, with both sides of each condition
            assert desk.page.locator("#verdictsBody [data-verdict=SILENT]", has_text="you have 8").count() >= 1
        if place == 5:  # here the theorem speaks, and the run keeps its promise
            assert desk.page.locator("#verdictsBody [data-verdict=HOLDS]", has_text="Theorem 1").count() == 1
            bound, mean = desk.ask(
                "[explorer.app.run.theory.target.theorem.bound, explorer.app.run.last.identity.meanLoss]"
            )
            assert mean <= bound < np.log(2)  # and says more than nothing
        if place == 7:
            desk.page.click("#tourAlso")
            assert desk.ask("[...document.querySelectorAll('.pointed')].map((e) => e.id)") == ["takeaways"]
        desk.page.click("#tourNext")
    assert desk.page.locator("#tour").is_hidden() and len(set(titles)) == 8
    assert desk.page.locator(".pointed").count() == 0 and desk.complaints == []


@pytest.mark.parametrize("width, height", [(390, 844), (1024, 768)])
def test_what_a_stop_speaks_of_is_seen_on_a_small_screen(opened, width, height):
    tab = opened(SMALL, width=width, height=height, motion="reduce")
    tab.page.evaluate(SHORTEN)
    for place in (0, 1, 2, 4, 6):
        tab.page.evaluate("(place) => explorer.app.tour.go(place)", place)
        end_of_stop(tab, place)
        hidden = [name for name in FRAMED[place] if not tab.page.evaluate(SEEN, name)]
        assert hidden == [], f"stop {place + 1} at {width}"
        assert tab.ask("document.documentElement.scrollWidth <= innerWidth")


def test_the_words_do_not_run_ahead_of_the_run(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEN)
    desk.page.evaluate("""() => { window.told = []; const app = explorer.app;
      const note = () => { const text = document.querySelector('#tourText').textContent; told.push([Boolean(app.queue), app.run ? app.run.model.H : 0, text, document.querySelector('#tourSeen').textContent]); };
      new MutationObserver(note).observe(document.querySelector('#tour'), { subtree: true, childList: true, characterData: true });
      app.tour.go(2); }""")
    end_of_stop(desk, 2)
    desk.until("told.length && told[told.length - 1][3].startsWith('The loss fell here too')")
    told = desk.ask("told")
    first = [one for one in told if one[0]]
    assert first and all("First comes the one with one head" in text for _, _, text, _ in first)
    assert any(re.match(r"Run 1 of 2: (step|preparing)", seen) for *_, seen in told)
    assert any(seen.startswith("Run 2 of 2: step") for *_, seen in told)
    assert all(heads == 1e6 for _, heads, _, seen in told if "fell here too" in seen)


def test_leaving_one_out_is_measured_on_the_run_shown_and_moves(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEN)
    desk.page.evaluate("() => { explorer.app.tour.go(6); }")
    end_of_stop(desk, 6)
    desk.set("n", 14)
    desk.page.evaluate("""() => { window.moves = []; const out = document.querySelector('#measureTold');
      new MutationObserver(() => moves.push(out.textContent)).observe(out, { childList: true, subtree: true }); }""")
    desk.page.click("#measureIt")
    desk.until("document.querySelector('#measureTold').textContent.includes('mean of 10 runs')")
    assert "Without one of 14 training sequences" in desk.text("#measureTold")
    told = set(re.findall(r"sequence \d+ of 10", " ".join(desk.ask("moves"))))
    assert told == {f"sequence {k} of 10" for k in range(1, 11)}
    rows = desk.page.locator("#measureTold tr").all_inner_texts()
    assert len(rows) == 4
    desk.page.click("#tourAlso")
    desk.until("explorer.app.run.train.n === 160 && explorer.app.pinned.train.n === 12")


def test_waking_times_are_a_plot(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEN)
    desk.page.evaluate("() => { Object.assign(explorer.stops[3].settings, { numSteps: 5 }); explorer.app.tour.go(3); }")
    end_of_stop(desk, 3)
    desk.page.click("#measureIt")
    desk.until("document.querySelectorAll('.waking circle').length >= 3")
    low, high = (
        desk.ask(f"Number(document.querySelectorAll('.waking circle')[{k}].getAttribute('cy'))") for k in (0, 2)
    )
    assert high < low  # more heads wake later, and later is higher
    assert "1 head at step" in desk.page.locator(".waking").get_attribute("aria-label")
    desk.page.click("#tourEnd")
    assert desk.complaints == []


def test_takeaways_wait_for_each_other_and_each_gets_its_verdict(desk):
    desk.visit(SMALL)
    desk.page.evaluate("""() => { window.told = []; for (const one of explorer.takeaways) { const runs = one.runs;
      one.runs = () => runs().map((set) => set.slice(0, 1).map((plan) => ({ ...plan, n: 20, numSteps: 40, heads: Math.min(plan.heads, plan.start === 'gaussian' ? 4 : 1e6) }))); }
      for (const chip of document.querySelectorAll('.takeaway .chip')) new MutationObserver(() => told.push([chip.closest('article').id, chip.textContent])).observe(chip, { childList: true }); }""")
    assert desk.page.locator(".takeaway").count() == 5
    names = desk.ask("explorer.takeaways.map((one) => one.id)")
    for name in names:
        desk.page.click(f"#ask-{name}")
    assert "waiting" in desk.page.locator(".takeaway .chip").all_inner_texts()
    desk.page.click(f"#ask-{names[3]}")  # pressed again while it waits: stopped, the others go on
    verdicts = {"yes", "no", "open", "it depends"}
    wanted = [name for k, name in enumerate(names) if k != 3]
    for name in wanted:
        desk.until(f"{sorted(verdicts)}.includes(document.querySelector('#takeaway-{name} .chip').textContent)")
    assert desk.text(f"#takeaway-{names[3]} .chip") == "stopped"
    running = [name for name, text in desk.ask("told") if text == "running"]
    assert running == [f"takeaway-{name}" for name in wanted]  # one after the other, none lost
    desk.page.locator(f"#takeaway-{names[0]} .link").click()
    desk.until("explorer.app.pinned && explorer.app.run.settings === explorer.app.settings")
    assert desk.complaints == []


@pytest.mark.browser
def test_a_takeaway_at_full_length(opened):
    tab = opened(SMALL)
    tab.page.click("#ask-start")
    tab.until("document.querySelector('#takeaway-start .chip').textContent === 'no'")
    assert "within a factor" in tab.text("#takeaway-start")
