"""The guided tour and the five takeaways: words, frames and runs go together."""

import re

import numpy as np
import pytest

pytestmark = pytest.mark.browser

SMALL = "#T=4&d=6&M=2&relevant=2&n=20&nTest=20&nFresh=20&numSteps=30"
# what each stop speaks of, and so what it frames
FRAMED = [
    ["maps", "cloud"],
    ["lossChart", "cloud", "maps"],
    ["lossChart", "cloud", "bowl"],
    ["cloud", "lossChart"],
    ["cloud", "lossChart"],
    ["verdicts", "work"],
    ["verdicts", "identity", "focusChart"],
    ["lossChart", "verdicts"],
    ["focusChart", "maps"],
]
SILENT, SPEAKS, UNSEEN_DATA, LAST = 5, 6, 7, 8  # places of stops
WORDS = {
    "maps": "map",
    "cloud": "head",
    "bowl": "bowl",
    "lossChart": "loss",
    "focusChart": "attention",
    "verdicts": "Theorem",
    "identity": "exact decomposition",
    "work": "model at work",
}
SHORTEN = """() => { for (const [k, steps] of [[1, 60], [2, 60], [3, 60], [4, 60], [5, 60], [7, 20], [8, 60]]) for (const plan of [explorer.stops[k].settings, explorer.stops[k].pin]) {
  if (plan) Object.assign(plan, { n: 12, nTest: plan.nTest === 0 ? 0 : 12, numSteps: steps });
} }"""
# where only the layout is looked at
SHORTEST = re.sub(r"\[(\d), \d+\]", r"[\1, 15]", SHORTEN).replace("[7, 15]", "[7, 15], [6, 15]")
# framed panels that cannot be seen whole: not in the window, or under the words of the tour or the bar that sticks to the top
UNSEEN = """() => { const box = (e) => e.getBoundingClientRect(), covers = ['#tour', '.transport'].map((e) => box(document.querySelector(e)));
  const under = (it) => covers.some((top) => it.left < top.right - 1 && it.right > top.left + 1 && it.top < top.bottom - 1 && it.bottom > top.top + 1);
  const seen = (e) => { const it = box(e); return it.height > 40 && it.top >= 0 && it.bottom <= innerHeight + 1 && it.left >= 0 && it.right <= innerWidth + 1 && !under(it); };
  return [...document.querySelectorAll('.pointed')].filter((e) => !seen(e)).map((e) => e.id); }"""
# whether all words of the tour can be read, or are said to go on below; and whether the buttons are there
READABLE = """() => { const told = document.querySelector('#tour .told'), box = document.querySelector('#tour').getBoundingClientRect(), cut = told.scrollHeight > told.clientHeight + 2;
  const here = (e) => { const it = e.getBoundingClientRect(); return it.top >= box.top && it.bottom <= box.bottom && it.bottom <= innerHeight; };
  const cue = document.querySelector('#tourMore'), shown = (e) => e.getClientRects().length > 0;
  return told.clientHeight > 60 && cut === shown(cue) && [...document.querySelectorAll('#tour button')].filter(shown).every(here); }"""


def end_of_stop(tab, place):
    tab.until(f"explorer.app.tour.at === {place} && explorer.app.tour.done")


def all_is_seen(tab, where):
    """What is framed is seen and the words can be read, once the page has been laid out."""
    tab.until(f"({UNSEEN})().length === 0 && ({READABLE})()", where=where)


def test_each_stop_sets_what_it_speaks_of_and_frames_it_alone(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEN)
    desk.page.click("#startTour")
    titles = []
    for place, framed in enumerate(FRAMED):
        end_of_stop(desk, place)
        titles.append(desk.text("#tour h2"))
        assert sorted(
            desk.ask("[...document.querySelectorAll('.pointed')].map((e) => e.id)")
        ) == sorted(framed)
        words = desk.text("#tour")
        assert all(WORDS[name] in words for name in framed), words
        all_is_seen(desk, f"stop {place + 1}")
        if place == SILENT:  # silent, with both sides of each condition
            assert (
                desk.page.locator(
                    "#verdictsBody [data-verdict=SILENT]", has_text="you have 8"
                ).count()
                >= 1
            )
        if place == SPEAKS:  # here the theorem speaks, and the run keeps its promise
            assert (
                desk.page.locator(
                    "#verdictsBody [data-verdict=HOLDS]", has_text="Theorem 1"
                ).count()
                == 1
            )
            bound, mean = desk.ask(
                "[explorer.app.run.theory.target.theorem.bound, explorer.app.run.last.identity.meanLoss]"
            )
            assert mean <= bound < np.log(2)  # and says more than nothing
        if place == LAST:
            desk.page.click("#tourAlso")
            assert desk.page.locator("#tour #takeaways").is_visible()
        desk.page.click("#tourNext")
    assert desk.page.locator("#tour").is_hidden() and len(set(titles)) == 9
    assert desk.page.locator("#middle #takeaways").is_visible()  # back in its place
    assert desk.page.locator(".pointed").count() == 0 and desk.complaints == []


def test_on_a_tablet_all_that_a_stop_speaks_of_is_seen(opened):
    tab = opened(SMALL, width=1024, height=768, motion="reduce")
    tab.page.evaluate(SHORTEST)
    for place in range(9):
        tab.page.evaluate("(place) => explorer.app.tour.go(place)", place)
        end_of_stop(tab, place)
        all_is_seen(tab, f"stop {place + 1}")
        assert tab.ask("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_phone_the_tour_comes_in_parts_that_fit(opened):
    tab = opened(SMALL, width=390, height=844, motion="reduce")
    tab.page.evaluate(SHORTEST)
    tab.page.click("#startTour")
    place = part = 0
    said, framed = "", set()
    while True:
        end_of_stop(tab, place)
        where = f"stop {place + 1} of 9, part {part + 1}"
        assert tab.text("#tour .kicker").lower().startswith(where)
        assert tab.page.locator(".pointed").count() == 1
        all_is_seen(tab, where)
        assert tab.page.locator("#tourMore").is_hidden(), where  # nothing has to be scrolled
        assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
        framed.add(tab.page.locator(".pointed").get_attribute("id"))
        said += tab.text("#tour .told")
        if tab.ask("explorer.app.tour.lastPart"):
            every = tab.ask(
                f"[explorer.stops[{place}].text, ...explorer.stops[{place}].seen.map(([, text]) => text)]"
            )
            assert all(text in said for text in every) and framed == set(FRAMED[place])
            if place == LAST:
                break
            place, part, said, framed = place + 1, 0, "", set()
        else:
            part += 1
        tab.page.click("#tourNext")
    tab.page.click("#tourBack")
    assert tab.text("#tour .kicker").lower().startswith(f"stop 9 of 9, part {part}")
    assert tab.complaints == []


def test_words_that_do_not_fit_are_said_to_go_on(opened):
    tab = opened(SMALL, width=390, height=844, motion="reduce")
    tab.page.evaluate(
        "() => { const [stop] = explorer.stops; stop.text = stop.text.repeat(3); explorer.app.tour.go(0); }"
    )
    tab.until("!document.querySelector('#tourMore').hidden")
    assert tab.page.evaluate(READABLE)
    while tab.page.locator("#tourMore").is_visible():
        before = tab.ask("document.querySelector('#tour .told').scrollTop")
        tab.page.click("#tourMore")
        tab.until(f"document.querySelector('#tour .told').scrollTop > {before}")
        tab.until(
            "document.querySelector('#tourMore').hidden === (document.querySelector('#tour .told').scrollTop + document.querySelector('#tour .told').clientHeight >= document.querySelector('#tour .told').scrollHeight - 2)"
        )
    assert tab.complaints == []


def test_the_tour_stands_still(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEST)
    places = set()
    for place in range(9):
        desk.page.evaluate("(place) => explorer.app.tour.go(place)", place)
        places.add(
            tuple(
                desk.ask(
                    "['#tour', '#tourNext'].flatMap((e) => { const box = document.querySelector(e).getBoundingClientRect(); return [box.left, box.top]; })"
                )
            )
        )
    assert len(places) == 1


def test_the_words_do_not_run_ahead_of_the_run(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEN)
    desk.page.evaluate("""() => { window.told = []; const app = explorer.app;
      const note = () => { if (app.tour.at !== 2) return; const text = document.querySelector('#tourText').textContent; told.push([Boolean(app.queue), app.run ? app.run.model.H : 0, text, document.querySelector('#tourSeen').textContent]); };
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
    desk.page.evaluate("() => { explorer.app.tour.go(7); }")
    end_of_stop(desk, UNSEEN_DATA)
    desk.set("n", 14)
    desk.page.evaluate("""() => { window.moves = []; const out = document.querySelector('#measureTold');
      new MutationObserver(() => moves.push(out.textContent)).observe(out, { childList: true, subtree: true }); }""")
    desk.page.click("#measureIt")
    desk.until("document.querySelector('#measureTold').textContent.includes('mean of 10 runs')")
    assert "Without one of 14 training sequences" in desk.text("#measureTold")
    told = set(re.findall(r"sequence \d+ of 10", " ".join(desk.ask("moves"))))
    assert told == {f"sequence {k} of 10" for k in range(1, 11)}
    rows = desk.page.locator("#measureTold tr").all_inner_texts()
    assert len(rows) == 7 and all(len(row.split("\t")) == 2 for row in rows)


def test_what_was_measured_follows_the_run(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEN)
    desk.page.evaluate("() => { explorer.app.tour.go(7); }")
    end_of_stop(desk, UNSEEN_DATA)
    assert desk.page.locator("#tourAlso").is_disabled()  # it waits for what it is compared with
    desk.page.click("#measureIt")
    desk.until(
        "document.querySelector('#measureTold').textContent.includes('Without one of 12 training')"
    )
    few = desk.page.locator("#measureTold tr").all_inner_texts()
    desk.until("!document.querySelector('#tourAlso').disabled")
    # what is said while the run is made may be gone before it is asked for: the page notes it
    desk.page.evaluate("""() => { window.twelve = explorer.app.run; window.noted = null; window.off = false;
      const told = document.querySelector('#measureTold'), measure = document.querySelector('#measureIt');
      new MutationObserver(() => { if (!noted && told.textContent.includes('Training with 160 sequences'))
        window.noted = [...told.querySelectorAll('tr')].map((row) => row.innerText);
      }).observe(told, { childList: true, subtree: true, characterData: true });
      new MutationObserver(() => { window.off ||= measure.disabled; }).observe(measure, { attributes: true }); }""")
    desk.page.click("#tourAlso")
    desk.until("window.noted")
    # what is there stays: the table, and the run that is pinned now instead of being made again
    assert [row.split("\t")[:2] for row in desk.ask("noted")] == [row.split("\t") for row in few]
    desk.until("window.off")
    assert desk.ask("explorer.app.pinned === twelve")
    desk.until("explorer.app.run.train.n === 160")
    desk.until(
        "document.querySelector('#measureTold').textContent.includes('Without one of 160 training')"
    )
    both = [row.split("\t") for row in desk.page.locator("#measureTold tr").all_inner_texts()]
    assert both[0][1:] == ["12", "160"] and ["\t".join(row[:2]) for row in both] == few
    assert all(one != two for _, one, two in both)
    assert desk.page.locator("#tourAlso").is_hidden() and desk.text("#measureIt") == "Measure again"
    gap = desk.ask("explorer.app.run.last.testLoss - explorer.app.run.last.trainLoss")
    assert both[-1][2] == desk.page.evaluate("(gap) => explorer.number(gap, 3)", gap)


def test_waking_times_are_a_plot(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEN)
    desk.page.evaluate("() => explorer.app.tour.go(3)")
    end_of_stop(desk, 3)
    desk.page.click("#measureIt")
    desk.until("document.querySelectorAll('.waking circle').length >= 3")
    low, high = (
        desk.ask(f"Number(document.querySelectorAll('.waking circle')[{k}].getAttribute('cy'))")
        for k in (0, 2)
    )
    assert high < low  # more heads wake later, and later is higher
    assert "1 head at step" in desk.page.locator(".waking").get_attribute("aria-label")
    ticks = desk.page.locator(".waking .tick").all_text_contents()
    assert ticks == ["3", "10", "30", "100", "300"]
    assert "steps until awake" in desk.page.locator(".waking").text_content()
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
        desk.until(
            f"{sorted(verdicts)}.includes(document.querySelector('#takeaway-{name} .chip').textContent)"
        )
    assert desk.text(f"#takeaway-{names[3]} .chip") == "stopped"
    running = [name for name, text in desk.ask("told") if text == "running"]
    started = [
        name for name in running if name != f"takeaway-{names[3]}"
    ]  # which may have begun before it was stopped
    assert started == [f"takeaway-{name}" for name in wanted]  # one after the other, none lost
    for name in wanted:  # what was asked stays beside the answer
        asked = desk.page.evaluate(
            "(id) => explorer.takeaways.find((one) => one.id === id).asks", name
        )
        assert asked in desk.text(f"#takeaway-{name}") and "√H" not in desk.text(
            f"#takeaway-{name}"
        )
    desk.page.locator(f"#takeaway-{names[0]} .link").click()
    desk.until("explorer.app.pinned && explorer.app.run.settings === explorer.app.settings")
    assert desk.complaints == []


def test_in_the_tour_the_curves_are_those_of_the_answer(desk):
    desk.visit(SMALL)
    desk.page.evaluate(SHORTEN)
    desk.page.evaluate("() => explorer.app.tour.go(8)")
    end_of_stop(desk, LAST)
    desk.page.click("#tourAlso")
    desk.page.evaluate(
        """() => { const one = explorer.takeaways[0]; one.runs = () => [1, 64].map((heads) => [{ n: 20, nTest: 0, heads, numSteps: 30 }]); }"""
    )
    desk.page.click("#ask-more-heads")
    desk.until(
        "explorer.app.pinned && explorer.app.pinned.model.H === 1 && explorer.app.run.model.H === 64"
    )
    desk.status("finished")
    assert (
        desk.ask("explorer.app.tour.at") == LAST
        and desk.page.locator("#tour #takeaways").is_visible()
    )
    assert desk.ask("[...document.querySelectorAll('.pointed')].map((e) => e.id)") == ["lossChart"]
    assert "150 steps of equal size" in desk.text("#takeaway-more-heads")
    assert "64 heads; pinned (dashed): 1 head" in desk.text("#takeaway-more-heads")
    desk.page.click("#tourBack")
    assert (
        desk.page.locator("#tour #takeaways").count() == 0
        and desk.ask("explorer.app.tour.at") == LAST
    )
    desk.page.click("#tourEnd")
    assert desk.complaints == []


def test_on_a_phone_an_answer_is_seen_whole_beside_the_runs_that_it_names(opened):
    tab = opened(SMALL, width=390, height=844, motion="reduce")
    tab.page.evaluate("""() => { window.told = []; explorer.stops[8].pin = null; Object.assign(explorer.stops[8].settings, { n: 12, numSteps: 5 });
      for (const one of explorer.takeaways) { const runs = one.runs; one.runs = () => runs().map((set) => set.slice(0, 1).map((plan) => ({ ...plan, n: 12, nTest: plan.nTest && 12, numSteps: 30, heads: Math.min(plan.heads, 64) }))); }
      new MutationObserver(() => told.push(document.querySelector('#pinned').textContent)).observe(document.querySelector('#pinned'), { childList: true });
      explorer.app.tour.go(8); }""")
    end_of_stop(tab, LAST)
    tab.page.evaluate("() => explorer.app.tour.ask()")
    for name in ("generalize", "more-heads"):
        claim = tab.page.evaluate(
            "(id) => explorer.takeaways.find((one) => one.id === id).claim", name
        )
        tab.page.click(f"#ask-{name}")
        tab.until(
            f"document.querySelector('#pinned').textContent.includes('{claim}') && !explorer.app.queue"
        )
        tab.status("finished")
        tab.until("document.querySelector('#pinned').textContent.includes('pinned (dashed)')")
        assert any(f"“{claim}”: run 1 of 2" in text for text in tab.ask("told"))
        top, bottom, end = tab.page.evaluate(
            """(name) => { const box = (e) => document.querySelector(e).getBoundingClientRect(), told = box('#tour .told');
              const covered = document.querySelector('#tourMore').hidden ? 0 : 54;
              return [box(`#takeaway-${name} h3`).top - told.top, box(`#takeaway-${name} .answer`).bottom - told.top, told.height - covered]; }""",
            name,
        )
        assert top >= -1 and bottom <= end + 1
        label, bar = (tab.page.locator(node).bounding_box() for node in ("#pinned", ".transport"))
        assert label["y"] >= bar["y"] + bar["height"] - 1  # not under the bar
        tab.until(f"({UNSEEN})().length === 0")
    assert tab.complaints == []


def test_numbers_in_the_words_are_those_of_the_cards(opened):
    tab = opened(SMALL)
    tab.page.evaluate("() => explorer.app.visit(explorer.stops[2].settings, null, false)")
    tab.until(
        "explorer.app.run.settings === explorer.app.settings && explorer.app.run.model.H === 1e6"
    )
    need = tab.ask("explorer.app.run.theory.target.theorem.headsNeeded")
    assert f"here about {need / 1e6:.0f} million" in tab.ask("explorer.stops[2].seen.at(-1)[1]")
    loss = tab.ask("explorer.app.run.theory.target.targetLoss")
    assert f"with loss {loss:.2f}" in tab.ask("explorer.stops[2].seen.at(-1)[1]")


@pytest.mark.browser
def test_a_takeaway_at_full_length(opened):
    tab = opened(SMALL)
    tab.page.click("#ask-start")
    tab.until("document.querySelector('#takeaway-start .chip').textContent === 'no'")
    assert "within a factor" in tab.text("#takeaway-start")
