"""Ledger texts, Section 5: the tokenized mixture."""

from manyheads.papers.deora2023.bridge import Entry

ENTRIES = (
    Entry(
        id="dm1",
        place="Section 5, (DM1)",
        title="tokenized mixture model",
        printed="x_t = μ_y for t in 𝓡, x_t = ν_{j_t} + z_t with j_t uniform on 1..M otherwise",
        corrected="as printed; the law of 𝓡 is not specified (here: uniform per sample, or fixed)",
        ours="",
        proof="docs/theory/mixture.md#the-sampler",
        checker="check_mixture.mixture_model",
        remark="checked on samples token by token",
        errata=("E26",),
        used_by=("lemma2", "prop2", "prop3"),
    ),
    Entry(
        id="asm3",
        place="Section 5, Assumption 3",
        title="assumptions on the mixture",
        printed="equiprobable labels; orthogonal patterns of norm S; |𝓡| = ζT; |⟨z, μ_±⟩| ≤ Z_μ, |⟨z, ν_ℓ⟩| ≤ "
        "Z_ν/M, ‖z‖ ≤ Z almost surely; "
        "Assumption 1 holds with R = √(S² + Z² + 2Z_ν/M)",
        corrected="R = max(1, √(S² + Z² + 2Z_ν/M))",
        ours="",
        proof="docs/theory/mixture.md#the-sampler",
        checker="check_mixture.mixture_assumptions",
        remark="every almost-sure bound holds for every sample; worst-case noise attains them",
        errata=("E22",),
        used_by=("lemma2", "prop2", "prop3"),
    ),
    Entry(
        id="lemma2",
        place="Section 5.1, Lemma 2 with (6)",
        title="first phase: one gradient step from zero",
        printed="U_h^{(1)} = α_h 1_T(ζ/2 u_*ᵀ + pᵀ), W_h^{(1)} = 0 and, with probability 1−δ, ‖p‖ ≤ C(2S+Z)(√(d/n1) "
        "+ √(log(1/δ)/n1))",
        corrected="U_h^{(1)} = α_h 1_T(ζ/4 u_*ᵀ + pᵀ), because −ℓ'(0) = 1/2 and E[y x̄] = ζu_*/2; (6) holds with C "
        "= 1/√2",
        ours="‖p‖ ≤ P(δ) = (S + (1−ζ)Z)(1/2 + √(log(1/δ)/2))/√n1, free of the dimension",
        proof="docs/theory/mixture.md#lemma-2",
        checker="check_mixture.first_phase_step",
        remark="share of P(δ) used by the (1−δ) quantile of ‖p‖",
        tightness=0.21,
        errata=("E12",),
        aliases=("eq6",),
        used_by=("prop2",),
    ),
    Entry(
        id="prop2",
        place="Section 5.1, Proposition 2 with (7)",
        title="the first phase is a good initialization",
        printed="B_2 = √T(S+P); B_Φ = TR(S+P)√(2log(n/δ)) with probability 1−δ; γ = γ_*/2 with probability 1−δ if "
        "√H ≳ R⁴T(S+P)√(2log(n/δ))/γ_*, "
        "γ_* = T(1−ζ)ζ(ζS⁴−7Z̄S²−12Z̄²−16Z̄³/S²)/(4√(2(M+1))) − PT^{5/2}(S+Z)³ + S√T(ζ−2(1−ζ)Z_μ/S²)/√2 (7)",
        corrected="γ = γ_* for every H ≥ 1, surely; B_2 and B_Φ at least 1",
        ours="B_2 = max(1, √T(ζS/(2√2)+P)); B_Φ = max(1, TR(ζS/(2√2)+P)√(2log(2/δ))), 0 for balanced signs and even H; "
        "γ_* = (Tζ(1−ζ)S⁴/(4√(2(M+1))))[ζf_rel + (1−ζ)f_irr] − TPR³√((2M+1)/(2M+2)) + S√(T/2)(ζ−2(1−ζ)Z_μ/S²) for q "
        "= Z̄/S² ≤ 1/4, "
        "f_rel = ζ(1−2q)(1−q)−2q², f_irr = ζ(1−2q)(1−4q+2q²)−4q²−8q³",
        proof="docs/theory/mixture.md#proposition-2",
        checker="check_mixture.margin_after_first_phase",
        remark="without noise and with p = 0 both (7) and ours are exact",
        tightness=1.0,
        errata=("E2", "E13", "E14", "E21", "E24", "E25"),
        aliases=("eq7",),
        used_by=("cor2", "plan"),
    ),
    Entry(
        id="eq8",
        place="Section 5.2, Eq. (8)",
        title="softmax logits under W_*",
        printed="[r_t]_{t'} = O(S⁴) for t' in 𝓡 and O(S²) for t' outside",
        corrected="exact values; the gap between relevant and irrelevant keys is of order S⁴",
        ours="relevant query: S⁴ and S²⟨μ_y, z'⟩; irrelevant query: S²(S² + Σ⟨ν_ℓ, z⟩ + ⟨μ_y, z⟩) and "
        "Σ_±⟨μ_±, z⟩⟨μ_±, z'⟩ + (S² + Σ⟨ν_ℓ, z⟩)(⟨μ_+, z'⟩ + ⟨μ_-, z'⟩); smallest gap S⁴(1 − 4q + 2q²) for q ≤ 1/2",
        proof="docs/theory/mixture.md#eq-8",
        checker="check_mixture.logits_under_oracle",
        remark="worst-case noise attains the smallest gap",
        tightness=1.0,
        errata=("E17",),
        used_by=("prop2", "prop3"),
    ),
    Entry(
        id="prop3",
        place="Section 5.3, Proposition 3 with (9), (10), (11)",
        title="attention can suppress the irrelevant tokens",
        printed="Z_μ = Z_ν ≤ S²/8 and Γ ≥ (8√(2(M+1))/(3S²)) log((1/ζ−1)/ε) imply irrelevant mass ≤ ε (10) and "
        "yΦ(X; U_opt, ΓW_opt) ≥ γ_attn(ε) = (√T/(√2 S))(S²(1−ε) − 2εZ_μ) (11)",
        corrected="as printed, with Γ ≥ 0 as well",
        ours="8/3 can be replaced by 1/(1 − 4q + 2q²), which is 32/17 at q = 1/8",
        proof="docs/theory/mixture.md#proposition-3",
        checker="check_mixture.attention_expressivity",
        remark="without noise, at the smallest Γ of ours, the irrelevant mass is ε/(1 + ε)",
        tightness=0.999,
        errata=("E16", "E20"),
        aliases=("eq9", "eq10", "eq11"),
        used_by=("sec5.3",),
    ),
    Entry(
        id="linear-margin",
        place="Section 5.1 after Proposition 2, and Section 7",
        title="margin of a linear model",
        printed="γ_lin = Ω(ζS); γ_attn ≥ γ_* ≥ γ_lin",
        corrected="γ_lin ≥ S√(T/2)(ζ − 2(1−ζ)Z_μ/S²); neither inequality of the chain is unconditional, and γ_* "
        "lives on another scale",
        ours="equality when Z_μ = 0 and 𝓡 is random; S√(ζT/2) when 𝓡 is fixed",
        proof="docs/theory/mixture.md#linear-margin",
        checker="check_mixture.linear_separation",
        remark="certified margin of a sample against the formula; equal without noise",
        tightness=1.0,
        errata=("E15", "E26"),
        used_by=("plan",),
    ),
    Entry(
        id="sec5.3",
        place="Section 5.3 with (12)",
        title="the attention target does not fit the theorem",
        printed="U_h = (log n/γ_attn)H^{-1/2}U_opt, W_h = C H^{-p}W_opt cannot satisfy H^{1/2} ≳ S⁵‖θ‖³ (12) for "
        "any C, p; nor with 1/H^c in place of 1/√H",
        corrected="the conclusion stands for n above an absolute constant, with H^{p−3/4} in place of H^{p−1/4}",
        ours="the obstruction is distance: reaching saturation in every head puts the target at a distance growing "
        "like √H, "
        "while its convexity gap stays near zero",
        proof="docs/theory/mixture.md#section-53",
        checker="check_mixture.impossibility",
        remark="an argument up to constants: exponents checked by linear programming, the distance measured",
        errata=("E17", "E18", "E19"),
        aliases=("eq12",),
        used_by=("certify",),
    ),
)
