"""Ledger texts, Sections 4.1 and 6.1: training."""

from .ledger import Entry

ENTRIES = (
    Entry(
        id="thm1",
        place="Section 4.1, Theorem 1 with (3) and (4)",
        title="training loss",
        printed="√H ≳ d √T R⁵ ‖θ‖_{2,∞} ‖θ−θ_0‖³ (3) and η ≤ 1 ∧ 1/ρ ∧ D²/(K L̂(θ)) ∧ D²/L̂(θ_0) with "
        "ρ ≲ d^{3/2}T^{3/2}R^{13}‖θ‖²_{2,∞}D² imply L̂(θ_K) ≤ (1/K)Σ_{k=1}^K L̂(θ_k) ≤ 2L̂(θ) + 5D²/(4ηK) (4) and "
        "‖θ_K−θ_0‖ ≤ 4D",
        corrected="Section 6.1 with its constants written out: √H ≥ 18 D² β3(‖θ‖_{2,∞} + 3D) and "
        "η ≤ 1 ∧ 1/ρ ∧ …, ρ = (2√T d R³/√H + TR²/4) α²; the same conclusions",
        ours="M ≥ max(‖U_θ‖_{2,∞}, ‖U_0‖_{2,∞} + 3.93 D²√T R/√H), √H ≥ (40/9) D² b3(M) and "
        "η ≤ min(1/b2(M), D²/(K L̂(θ)), D²/L̂(θ_0)) imply descent at every step, ‖θ_k−θ‖ ≤ 2D, ‖θ_k−θ_0‖ ≤ 3D, "
        "‖U_k‖_{2,∞} ≤ M and (4). Heads grow like D⁴ instead of D⁶, with no power of d",
        proof="docs/theory/training.md#theorem-1",
        checker="check_training.training_theorem",
        remark="run where its hypotheses are literally true; the bound is about 5 times the measured mean loss at "
        "the smallest such H",
        tightness=0.2,
        errata=("E4", "E6", "E7"),
        aliases=("eq3", "eq4", "theorem1"),
        used_by=("thm2", "cor2", "cor3", "plan", "certify"),
    ),
    Entry(
        id="descent",
        place="Section 6.1, Eq. (13)",
        title="descent lemma",
        printed="η_k ≤ 1/(β2(θ_k) ∨ β2(θ_{k+1})) implies L̂(θ_{k+1}) ≤ L̂(θ_k) − (η_k/2)‖∇L̂(θ_k)‖²",
        corrected="as printed",
        ours="η ≤ 1/b2(M) with M ≥ ‖U_k‖_{2,∞}, ‖U_{k+1}‖_{2,∞} suffices",
        proof="docs/theory/training.md#descent",
        checker="check_training.descent_lemma",
        remark="share of the allowed value L̂_k − (η/2)‖∇L̂_k‖² that is used, at the largest allowed step: near 1 by "
        "itself where the gradient is small; the promised decrease is up to 0.51 of the actual one",
        tightness=0.999,
        aliases=("eq13", "lemma7"),
        used_by=("thm1", "eq17"),
    ),
    Entry(
        id="eq14",
        place="Section 6.1, Eq. (14)",
        title="Taylor's theorem between an iterate and the target",
        printed="L̂(θ) ≤ L̂(θ_k) + ⟨∇L̂(θ_k), θ−θ_k⟩ + ½ min λ_min ‖θ−θ_k‖²",
        corrected="L̂(θ) ≥ L̂(θ_k) + ⟨∇L̂(θ_k), θ−θ_k⟩ + ½ min λ_min ‖θ−θ_k‖² (the sign is reversed in print)",
        ours="",
        proof="docs/theory/training.md#taylor",
        checker="check_training.taylor",
        remark="a short segment along the least convex direction uses it up",
        tightness=0.999,
        errata=("E8",),
        used_by=("eq16",),
    ),
    Entry(
        id="eq15",
        place="Section 6.1, Eq. (15)",
        title="local self-bounded weak convexity on a segment",
        printed="min_{[θ1,θ2]} λ_min(∇²L̂) ≥ −((β3(θ1) ∨ β3(θ2))/√H) max_{[θ1,θ2]} L̂",
        corrected="as printed",
        ours="with b3(max of the endpoint ‖U‖_{2,∞}) in place of β3",
        proof="docs/theory/training.md#taylor",
        checker="check_training.segment_convexity",
        remark="two idle heads moving against each other among many, as in Corollary 1 (3)",
        tightness=0.97,
        used_by=("eq16", "glqc"),
    ),
    Entry(
        id="eq16",
        place="Section 6.1, Eq. (16)",
        title="weak convexity inequality",
        printed="L̂(θ) ≥ L̂(θ_k) + ⟨∇L̂(θ_k), θ−θ_k⟩ − ½ ((β3(θ1) ∨ β3(θ2))/√H) max_α L̂(θ_{kα}) ‖θ−θ_k‖²",
        corrected="with β3(θ) ∨ β3(θ_k): θ1, θ2 are not defined there",
        ours="with b3(M) in place of β3",
        proof="docs/theory/training.md#taylor",
        checker="check_training.weak_convexity",
        remark="two idle heads moving against each other among many, as in Corollary 1 (3)",
        tightness=0.97,
        errata=("E9",),
        used_by=("eq17",),
    ),
    Entry(
        id="eq17",
        place="Section 6.1, Eq. (17)",
        title="regret before GLQC",
        printed="(1/K)ΣL̂_k ≤ L̂(θ) + D²/(2ηK) + (1/2K) Σ_{k<K} ((β3(θ) ∨ β3(θ_k))/√H) max_α L̂(θ_{kα}) ‖θ−θ_k‖², "
        "when every step descends",
        corrected="as printed",
        ours="with b3 in place of β3; and as an exact identity, see `identity`",
        proof="docs/theory/training.md#regret",
        checker="check_training.regret",
        remark="on runs of the mixture",
        tightness=0.45,
        used_by=("thm1",),
    ),
    Entry(
        id="glqc",
        place="Section 6.1, Proposition 4 with (18)",
        title="generalized local quasi-convexity",
        printed="2(β3(θ1) ∨ β3(θ2))‖θ1−θ2‖² ≤ √H implies max_{[θ1,θ2]} L̂ ≤ (4/3)(L̂(θ1) ∨ L̂(θ2))",
        corrected="as printed",
        ours="κ = (b3(M)/√H)‖θ1−θ2‖² < π² implies max_{[θ1,θ2]} L̂ ≤ (L̂(θ1) ∨ L̂(θ2))/cos(√κ/2): "
        "the printed hypothesis gives 1.066 and 4/3 holds up to κ = 2.088",
        proof="docs/theory/training.md#glqc",
        checker="check_training.quasi_convexity",
        remark="random and adversarial segments with κ up to π²; near 1 by itself for small κ, where the factor tends "
        "to 1; random segments with κ ≥ 1 reach 0.87",
        tightness=0.999,
        aliases=("prop4", "eq18"),
        used_by=("thm1", "eq22", "thm2"),
    ),
    Entry(
        id="onestep",
        place="ours",
        title="one-step inequality",
        printed="not in the paper",
        corrected="—",
        ours="⟨∇L̂_k, θ−θ_k⟩ ≤ A L̂(θ) − B L̂_k, A = √κ/sin√κ, B = √κ cot√κ, for κ < π²",
        proof="docs/theory/training.md#one-step",
        checker="check_training.one_step",
        remark="random segments; near 1 by itself for small κ, in whose limit it is exact; with κ ≥ 1 they reach 0.51",
        tightness=0.999,
        used_by=("thm1", "thm2"),
    ),
    Entry(
        id="iterates",
        place="Theorem 1 (last line), Section 6.1 (Lemma 10 of the appendix)",
        title="iterates stay near the start and the target",
        printed="‖θ_K−θ_0‖ ≤ 4‖θ−θ_0‖ and ‖θ_k−θ‖ ≤ 3‖θ−θ_0‖",
        corrected="as printed; the paper's own route gives √(13/3)·D for the second",
        ours="‖θ_k−θ‖ ≤ 2D and ‖θ_k−θ_0‖ ≤ 3D under our hypotheses",
        proof="docs/theory/training.md#theorem-1",
        checker="check_training.iterate_bounds",
        remark="on runs where the hypotheses are literally true the iterates never leave the ball of radius D "
        "around the target",
        tightness=0.5,
        aliases=("lemma10",),
        used_by=("thm1", "thm2"),
    ),
    Entry(
        id="identity",
        place="ours",
        title="exact decomposition of the mean train loss along a run",
        printed="not in the paper",
        corrected="—",
        ours="(1/K)Σ_{k=1}^K L̂_k = L̂(θ) + (‖θ−θ_0‖² − ‖θ−θ_K‖²)/(2ηK) + (1/K)Σ_{k<K}(c_k + δ_k), "
        "c_k = L̂_k + ⟨∇L̂_k, θ−θ_k⟩ − L̂(θ) (convexity gap), δ_k = L̂_{k+1} − L̂_k + (η/2)‖∇L̂_k‖² (descent defect); "
        "for every θ and every H. Without the negative parts it is a certificate",
        proof="docs/theory/identity.md#identity",
        checker="check_training.run_identity",
        remark="an identity: its residual tests the implementation. With the proximal target the certificate is "
        "within 2.1 times the measured mean loss on three settings of the mixture, within 2.5 times on ten other draws "
        "of each",
        tightness=0.66,
        used_by=("certify", "plan"),
    ),
)
