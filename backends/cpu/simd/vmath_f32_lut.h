/* vmath_f32_lut.h - f32 exp, log, tanh, erf, erfc and ndtr for AVX-512, where one instruction looks up 16 or 32
   floats held in registers: short polynomials, no division. Other ISAs use the table-free forms in
   vmath_f32.h. Coefficients: fpminimax (Sollya), one fit per interval. Included by vmath_f32.h. */

/* clang-format off */
/* 2^(i/16) */
static const float simd_exp_lut[16] __attribute__((aligned(64))) = {
    1, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fep0f, 0x1.3dea64p0f, 0x1.4bfdaep0f,
    0x1.5ab07ep0f, 0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f, 0x1.ae89fap0f,
    0x1.c199bep0f, 0x1.d5818ep0f, 0x1.ea4afap0f,
};

/* reciprocals of interval centres, chosen near 1/centre such that their logarithm is a float to
   within 2^-35 */
static const float simd_log_reciprocal_lut[16] __attribute__((aligned(64))) = {
    1, 0x1.d40f4ep-1f, 0x1.badefep-1f, 0x1.a42dbp-1f, 0x1.8f9708p-1f, 0x1.7cf1b6p-1f,
    0x1.6c138p-1f, 0x1.5caeb8p-1f, 0x1.4e5f7ep0f, 0x1.41525ap0f, 0x1.352496p0f, 0x1.29e368p0f,
    0x1.1f81eep0f, 0x1.159aaep0f, 0x1.0cadccp0f, 1,
};

/* -log of the reciprocals above */
static const float simd_log_lut[16] __attribute__((aligned(64))) = {
    0, 0x1.6f874p-4f, 0x1.290ddap-3f, 0x1.94c6f2p-3f, 0x1.fbab7ep-3f, 0x1.2ec494p-2f,
    0x1.5d2504p-2f, 0x1.8961fep-2f, -0x1.117d5ap-2f, -0x1.d1707ap-3f, -0x1.824e78p-3f,
    -0x1.365b36p-3f, -0x1.db6deep-4f, -0x1.4bda8ep-4f, -0x1.8bff52p-5f, 0,
};

/* row 0: centre c of the interval; row k: coefficient of (x - c)^(k-1) */
static const float simd_tanh_lut[7][32] __attribute__((aligned(64))) = {
    {2.25f, 2.75f, 3.25f, 3.75f, 4.5f, 5.5f, 6.5f, 7.5f, 8.5f, 0, 0, 0, 0, 0, 0, 0, 0.140625f,
     0.171875f, 0.203125f, 0.234375f, 0.28125f, 0.34375f, 0.40625f, 0.46875f, 0.5625f, 0.6875f,
     0.8125f, 0.9375f, 1.125f, 1.375f, 1.625f, 1.875f},
    {0x1.f4bfd6p-1f, 0x1.fbd50ap-1f, 0x1.fe767ap-1f, 0x1.ff6f18p-1f, 0x1.ffdfa6p-1f,
     0x1.fffbap-1f, 0x1.ffff68p-1f, 0x1.ffffecp-1f, 0x1.fffffep-1f, 1, 1, 1, 0, 0, 0, 0,
     0x1.1e1ddp-3f, 0x1.5c9308p-3f, 0x1.9a5f1cp-3f, 0x1.d7665cp-3f, 0x1.18a39ap-2f,
     0x1.52c2c6p-2f, 0x1.8a87e2p-2f, 0x1.bfae6ap-2f, 0x1.05087p-1f, 0x1.3157ep-1f, 0x1.5789p-1f,
     0x1.77d838p-1f, 0x1.9e5cb6p-1f, 0x1.c278a6p-1f, 0x1.d9c6fcp-1f, 0x1.e8789ep-1f},
    {0x1.641088p-5f, 0x1.09a7acp-6f, 0x1.88ef78p-8f, 0x1.21a7bep-9f, 0x1.02c124p-11f,
     0x1.1836ecp-14f, 0x1.2f5f3ap-17f, 0x1.48ac9ap-20f, 0x1.3c9c7p-23f, 0, 0, 0, 0, 0, 0, 1,
     0x1.f601cap-1f, 0x1.f12b02p-1f, 0x1.eb715ap-1f, 0x1.e4dfbp-1f, 0x1.d98b38p-1f,
     0x1.c7f726p-1f, 0x1.b3ff3p-1f, 0x1.9e23acp-1f, 0x1.7aeaeap-1f, 0x1.49e6cp-1f,
     0x1.197fcep-1f, 0x1.d834dp-2f, 0x1.615002p-2f, 0x1.cea746p-3f, 0x1.265e36p-3f,
     0x1.6fcfa2p-4f},
    {-0x1.5c37eep-5f, -0x1.077cbp-6f, -0x1.87cec4p-8f, -0x1.216666p-9f, -0x1.021422p-11f,
     -0x1.197772p-14f, -0x1.2a002cp-17f, -0x1.8bb77p-20f, -0x1.10a422p-21f, 0, 0, 0, 0, 0, 0, 0,
     -0x1.1872cp-3f, -0x1.52b16cp-3f, -0x1.89eb36p-3f, -0x1.be2e42p-3f, -0x1.039106p-2f,
     -0x1.2db97cp-2f, -0x1.50026p-2f, -0x1.6a11a2p-2f, -0x1.82646ep-2f, -0x1.897dd2p-2f,
     -0x1.79c85ep-2f, -0x1.5a9b0ap-2f, -0x1.1df0bcp-2f, -0x1.9711fcp-3f, -0x1.1068aep-3f,
     -0x1.5ee22ep-4f},
    {0x1.bbceecp-6f, 0x1.5992dap-7f, 0x1.0393cap-8f, 0x1.80e256p-10f, 0x1.58436cp-12f,
     0x1.74dae2p-15f, 0x1.945f86p-18f, 0x1.aeda34p-21f, 0x1.e68ec6p-22f, 0, 0, 0, 0, 0, 0,
     -0x1.5553dcp-2f, -0x1.3a8fcp-2f, -0x1.2fe72ep-2f, -0x1.204c68p-2f, -0x1.0f17d6p-2f,
     -0x1.e95e66p-3f, -0x1.98f866p-3f, -0x1.42c53ep-3f, -0x1.d626eep-4f, -0x1.bde09cp-5f,
     0x1.d6b06ap-7f, 0x1.071a6p-4f, 0x1.845ebcp-4f, 0x1.c68f5cp-4f, 0x1.97d558p-4f,
     0x1.33da7ep-4f, 0x1.a8652ap-5f},
    {-0x1.9677dep-7f, -0x1.50d9cep-8f, -0x1.013928p-9f, -0x1.7f28ep-11f, -0x1.6c4e5p-13f,
     -0x1.72760cp-16f, -0x1.e7aap-19f, 0x1.9740d8p-22f, 0x1.04cfeap-20f, 0, 0, 0, 0, 0, 0, 0,
     -0x1.76ac1p-5f, 0x1.ceccc4p-2f, 0x1.4581c4p-3f, -0x1.06e1fcp-2f, 0x1.3d0c36p-3f,
     0x1.8f4e32p-3f, 0x1.a45c7cp-3f, 0x1.0e0cb4p-3f, 0x1.445306p-3f, 0x1.eb7042p-4f,
     0x1.5f2db2p-4f, 0x1.35c5cap-5f, 0x1.ef343cp-9f, -0x1.549p-6f, -0x1.95424ep-6f,
     -0x1.5ac674p-6f},
    {0x1.0483fap-8f, 0x1.f69acp-10f, 0x1.94f33cp-11f, 0x1.33d23p-12f, 0x1.1fef76p-14f,
     0x1.3b52eep-17f, 0x1.4d547cp-20f, 0x1.c20c16p-23f, -0x1.410d9ap-20f, 0, 0, 0, 0, 0, 0,
     0x1.0eaddap-3f, -0x1.9286cep0f, 0x1.0a68aap2f, 0x1.07b4dcp-1f, -0x1.41e41ap1f,
     0x1.362d5p-3f, 0x1.18d338p-2f, 0x1.1f8324p-3f, -0x1.a673e2p-3f, -0x1.7a6284p-6f,
     -0x1.d5c6f4p-5f, -0x1.e018c2p-5f, -0x1.f52a4ep-5f, -0x1.071d5p-5f, -0x1.3358d4p-7f,
     0x1.a72fb8p-10f, 0x1.1f4baap-8f},
};

/* row k: coefficient of (x - i/8)^k */
static const float simd_erf_lut[6][32] __attribute__((aligned(64))) = {
    {0, 0x1.1f5e1ap-3f, 0x1.1af54ep-2f, 0x1.9dd0d2p-2f, 0x1.0a7ef6p-1f, 0x1.3f196ep-1f,
     0x1.6c1c98p-1f, 0x1.91724ap-1f, 0x1.af767ap-1f, 0x1.c6dad2p-1f, 0x1.d8865ep-1f,
     0x1.e5768cp-1f, 0x1.eea556p-1f, 0x1.f4f694p-1f, 0x1.f92d08p-1f, 0x1.fbe61ep-1f,
     0x1.fd9ae2p-1f, 0x1.fea422p-1f, 0x1.ff4048p-1f, 0x1.ff996p-1f, 0x1.ffcaa8p-1f,
     0x1.ffe514p-1f, 0x1.fff2dp-1f, 0x1.fff9bap-1f, 0x1.fffd1ap-1f, 0x1.fffeb4p-1f,
     0x1.ffff7p-1f, 0x1.ffffc4p-1f, 0x1.ffffe8p-1f, 0x1.fffff6p-1f, 0x1.fffffcp-1f,
     0x1.fffffep-1f},
    {0x1.06eba8p-3f, 0x1.1c62fap0f, 0x1.0f5d16p0f, 0x1.f5f0ccp-1f, 0x1.c1efccp-1f, 0x1.86e96ap-1f,
     0x1.492e44p-1f, 0x1.0cab64p-1f, 0x1.a911fp-2f, 0x1.45e99cp-2f, 0x1.e4653p-3f,
     0x1.5ce596p-3f, 0x1.e72374p-4f, 0x1.499d48p-4f, 0x1.b05532p-5f, 0x1.12cebp-5f,
     0x1.529bcep-6f, 0x1.94624ap-7f, 0x1.d41438p-8f, 0x1.06918ap-8f, 0x1.1d830ep-9f,
     0x1.2ce884p-10f, 0x1.3360e2p-11f, 0x1.305366p-12f, 0x1.2407d4p-13f, 0x1.0f9e5cp-14f,
     0x1.e9bb1cp-16f, 0x1.abfbc2p-17f, 0x1.6a9522p-18f, 0x1.295d4ap-19f, 0x1.d8cd1ap-21f,
     0x1.6a288p-22f},
    {0, -0x1.1c620ap-3f, -0x1.0f5c76p-2f, -0x1.7871a8p-2f, -0x1.c1f1a6p-2f, -0x1.e8a548p-2f,
     -0x1.edca86p-2f, -0x1.d63154p-2f, -0x1.a90e54p-2f, -0x1.6ea2c4p-2f, -0x1.2ec28p-2f,
     -0x1.dfb81p-3f, -0x1.6d638cp-3f, -0x1.0bd46cp-3f, -0x1.7a5a9cp-4f, -0x1.0183fep-4f,
     -0x1.52cb28p-5f, -0x1.ade188p-6f, -0x1.079af2p-6f, -0x1.36d984p-7f, -0x1.62fb88p-8f,
     -0x1.8803bcp-9f, -0x1.a92028p-10f, -0x1.b1598ep-11f, -0x1.9d9daap-12f, -0x1.ad74a6p-13f,
     -0x1.be065ep-14f, -0x1.28b51ep-14f, -0x1.8cec4p-15f, -0x1.559058p-18f, 0x1.3366e6p-19f,
     0x1.0e9486p-16f},
    {-0x1.8126f8p-2f, -0x1.6f5248p-2f, -0x1.3c964p-2f, -0x1.e0eb82p-3f, -0x1.2c0e02p-3f,
     -0x1.c83dd2p-5f, 0x1.b64ebap-6f, 0x1.7c60fcp-4f, 0x1.1b6598p-3f, 0x1.4cb392p-3f,
     0x1.571b4ap-3f, 0x1.43746ap-3f, 0x1.1c26f8p-3f, 0x1.d66146p-4f, 0x1.714536p-4f,
     0x1.144464p-4f, 0x1.8aa9f4p-5f, 0x1.0ea8fp-5f, 0x1.63f1ep-6f, 0x1.c1efp-7f, 0x1.11a69ep-7f,
     0x1.4093f4p-8f, 0x1.69b9fcp-9f, 0x1.8a0aa4p-10f, 0x1.9ecb9ep-11f, 0x1.a33284p-12f,
     0x1.980c64p-13f, 0x1.76cbp-14f, 0x1.450cb6p-15f, 0x1.3fd838p-16f, 0x1.25d4d4p-17f,
     0x1.8a6afep-18f},
    {0, 0x1.1787a6p-4f, 0x1.02b6dep-3f, 0x1.500984p-3f, 0x1.797d94p-3f, 0x1.6b76bap-3f,
     0x1.3c9118p-3f, 0x1.dd738cp-4f, 0x1.0fee3ep-4f, 0x1.97bfep-6f, -0x1.cf2224p-9f,
     -0x1.04a73p-5f, -0x1.501ea2p-5f, -0x1.88088p-5f, -0x1.701ee2p-5f, -0x1.899164p-5f,
     -0x1.e84094p-6f, -0x1.827e9ep-6f, -0x1.f2d0ap-7f, -0x1.3866d4p-6f, -0x1.dd9ff2p-7f,
     -0x1.47264ap-7f, -0x1.5d7566p-10f, -0x1.c9804cp-9f, -0x1.7c6e5ep-8f, -0x1.1b4ae6p-14f,
     0x1.0d6034p-9f, 0x1.694d4cp-8f, 0x1.77c0a8p-8f, -0x1.4b6b36p-11f, -0x1.2f1a84p-10f,
     -0x1.d38edep-9f},
    {0x1.ccbfccp-4f, 0x1.9fc764p-4f, 0x1.4348a2p-4f, 0x1.1cdd6cp-5f, 0x1.0fc5fcp-6f,
     -0x1.792774p-6f, -0x1.7560bap-5f, -0x1.c93bcp-5f, -0x1.21bdfap-4f, -0x1.f739cep-5f,
     -0x1.7c5312p-5f, -0x1.f425cep-6f, -0x1.c1765cp-7f, -0x1.d67f72p-10f, 0x1.ddd914p-8f,
     0x1.47c4c8p-7f, 0x1.72c232p-6f, 0x1.8aed3cp-7f, 0x1.5941d8p-7f, 0x1.0f7824p-7f,
     0x1.82b98cp-8f, 0x1.04895ap-8f, 0x1.7a8c26p-9f, 0x1.a0f124p-10f, 0x1.39829ap-11f,
     0x1.48fa6p-11f, 0x1.294c3cp-11f, 0x1.af4a42p-11f, 0x1.a6c498p-11f, -0x1.4f7734p-15f,
     -0x1.2a5e4cp-13f, -0x1.10c2ep-11f},
};

/* the normal distribution function at -x. row k: coefficient of (x - i/8)^k */
static const float simd_ndtr_lut[7][32] __attribute__((aligned(64))) = {
    {0x1p-1f, 0x1.cd116cp-2f, 0x1.9aecbap-2f, 0x1.6a527ap-2f, 0x1.3bf144p-2f, 0x1.105e82p-2f,
     0x1.d022p-3f, 0x1.86bb5p-3f, 0x1.44ed0cp-3f, 0x1.0ad7dap-3f, 0x1.b0bdd2p-4f, 0x1.5a6196p-4f,
     0x1.11a46ep-4f, 0x1.aaa65cp-5f, 0x1.482a24p-5f, 0x1.f20394p-6f, 0x1.74bcf8p-6f,
     0x1.13243cp-6f, 0x1.90925p-7f, 0x1.1f85a2p-7f, 0x1.96f4e6p-8f, 0x1.1bee6cp-8f,
     0x1.869044p-9f, 0x1.08c89p-9f, 0x1.61de2p-10f, 0x1.d21af4p-11f, 0x1.2e86fep-11f,
     0x1.8301bep-12f, 0x1.e7dbcap-13f, 0x1.2eff8p-13f, 0x1.72d956p-14f, 0x1.bf3766p-15f},
    {-0x1.988454p-2f, -0x1.95567ap-2f, -0x1.8bf2bap-2f, -0x1.7cc794p-2f, -0x1.6883dp-2f,
     -0x1.50096ep-2f, -0x1.345d5ep-2f, -0x1.169596p-2f, -0x1.ef8e58p-3f, -0x1.b1ec62p-3f,
     -0x1.7610bap-3f, -0x1.3d7712p-3f, -0x1.094086p-3f, -0x1.b46178p-4f, -0x1.616454p-4f,
     -0x1.19bfa4p-4f, -0x1.ba4b44p-5f, -0x1.55c74p-5f, -0x1.0402ep-5f, -0x1.857a94p-6f,
     -0x1.1f2f06p-6f, -0x1.a0f22cp-7f, -0x1.29fa54p-7f, -0x1.a34ea6p-8f, -0x1.227214p-8f,
     -0x1.8c2226p-9f, -0x1.09f38ep-9f, -0x1.5f90f6p-10f, -0x1.c9897ep-11f, -0x1.251bf8p-11f,
     -0x1.71b92ep-12f, -0x1.cb2208p-13f},
    {0, 0x1.95567ap-6f, 0x1.8bf2bap-5f, 0x1.1d95bp-4f, 0x1.6883dp-4f, 0x1.a40bcap-4f,
     0x1.ce8c0ep-4f, 0x1.e785c6p-4f, 0x1.ef8e58p-4f, 0x1.e829eep-4f, 0x1.d394e8p-4f,
     0x1.b483b8p-4f, 0x1.8de0c8p-4f, 0x1.628f32p-4f, 0x1.3537c8p-4f, 0x1.0823aap-4f,
     0x1.ba4b44p-5f, 0x1.6b23b4p-5f, 0x1.24833cp-5f, 0x1.ce819p-6f, 0x1.66fac6p-6f,
     0x1.119eecp-6f, 0x1.99b834p-7f, 0x1.2d6086p-7f, 0x1.b3ab1ep-8f, 0x1.357aaep-8f,
     0x1.b02bc6p-9f, 0x1.28a25p-9f, 0x1.90584ep-10f, 0x1.09a158p-10f, 0x1.5a9d9cp-11f,
     0x1.bcc8f6p-12f},
    {0x1.105834p-4f, 0x1.0a00bcp-4f, 0x1.eeef62p-5f, 0x1.b44f56p-5f, 0x1.6883cep-5f,
     0x1.1107aap-5f, 0x1.67c24ap-6f, 0x1.5c3b0cp-7f, 0x1.6023a2p-27f, -0x1.335caep-7f,
     -0x1.188c8p-6f, -0x1.78fd5cp-6f, -0x1.ba162cp-6f, -0x1.dd4a96p-6f, -0x1.e5e9fp-6f,
     -0x1.d8840ep-6f, -0x1.ba4b46p-6f, -0x1.908582p-6f, -0x1.60193ep-6f, -0x1.2d3cd2p-6f,
     -0x1.f6925p-7f, -0x1.995872p-7f, -0x1.45e9d2p-7f, -0x1.fbc144p-8f, -0x1.8342cap-8f,
     -0x1.215cf4p-8f, -0x1.a7dc2cp-9f, -0x1.306a84p-9f, -0x1.acf0ep-10f, -0x1.288b46p-10f,
     -0x1.927586p-11f, -0x1.0c2052p-11f},
    {0, -0x1.9339fep-8f, -0x1.83b2fap-7f, -0x1.1032a6p-6f, -0x1.4a78dp-6f, -0x1.6d5a3cp-6f,
     -0x1.77d1c8p-6f, -0x1.6b1a4ap-6f, -0x1.4a5ee4p-6f, -0x1.1a383ep-6f, -0x1.c0196p-7f,
     -0x1.42d6c4p-7f, -0x1.8de0d2p-8f, -0x1.53c95p-9f, 0x1.9c49bcp-12f, 0x1.6b30f6p-9f,
     0x1.26dcd2p-8f, 0x1.6eec0ep-8f, 0x1.92347p-8f, 0x1.971a0ap-8f, 0x1.84e504p-8f,
     0x1.62da1ep-8f, 0x1.378ecp-8f, 0x1.087d64p-8f, 0x1.b3ab22p-9f, 0x1.5cf85ap-9f,
     0x1.105b9ap-9f, 0x1.9ed3p-10f, 0x1.349968p-10f, 0x1.c0f15ep-11f, 0x1.3f894cp-11f,
     0x1.bd5d38p-12f},
    {-0x1.468c34p-7f, -0x1.39e966p-7f, -0x1.155da4p-7f, -0x1.b99dcap-8f, -0x1.2c486cp-8f,
     -0x1.21f084p-9f, 0x1.2f72c4p-13f, 0x1.2ade6p-9f, 0x1.07f3dep-8f, 0x1.59d4b2p-8f,
     0x1.880382p-8f, 0x1.936f7ap-8f, 0x1.805d9ap-8f, 0x1.556c48p-8f, 0x1.1a723ap-8f,
     0x1.aece8p-9f, 0x1.26f7d4p-9f, 0x1.51dceep-10f, 0x1.e628f6p-12f, -0x1.90337ap-13f,
     -0x1.5c7728p-11f, -0x1.fb22bp-11f, -0x1.2601dcp-10f, -0x1.2f705cp-10f, -0x1.224b56p-10f,
     -0x1.0683acp-10f, -0x1.c5c38ep-11f, -0x1.796408p-11f, -0x1.2f6ee6p-11f, -0x1.d93e5p-12f,
     -0x1.66c88ep-12f, -0x1.08ed12p-12f},
    {0x0p0f, 0x1.0b3004p-10f, 0x1.f9a5eep-10f, 0x1.594d82p-9f, 0x1.92431p-9f, 0x1.a39a7ep-9f,
     0x1.8e33bep-9f, 0x1.577412p-9f, 0x1.083064p-9f, 0x1.565fd6p-10f, 0x1.2e3714p-11f,
     -0x1.982468p-14f, -0x1.58335cp-11f, -0x1.171b24p-10f, -0x1.57095ap-10f, -0x1.6dd6f4p-10f,
     -0x1.61a0fcp-10f, -0x1.3b1656p-10f, -0x1.03da28p-10f, -0x1.8a4056p-11f, -0x1.0d54e8p-11f,
     -0x1.38ddeep-12f, -0x1.f59c84p-14f, 0x1.1722ap-16f, 0x1.cf771cp-14f, 0x1.5d2b1p-13f,
     0x1.91dba8p-13f, 0x1.965638p-13f, 0x1.7a843p-13f, 0x1.4c185ap-13f, 0x1.15c9eap-13f,
     0x1.be678p-14f},
};

/* e^(x^2) erfc x. row 0: centre c, a float next to the middle of the interval where the value is a
   float to within 2^-33; row k: coefficient of (x - c)^(k-1) */
static const float simd_erfc_lut[8][16] __attribute__((aligned(64))) = {
    {0x1.80ffp0f, 0x1.0053p1f, 0x1.41478p1f, 0x1.81c38p1f, 0x1.def98p1f, 0x1.2eb71p2f, 0x1.6eddap2f,
     0x1.aea1p2f, 0x1.099128p3f, 0x1.36b258p3f, 0x1.fd78p-5f, 0x1.7e3bp-3f, 0x1.80d38p-2f,
     0x1.41bf8p-1f, 0x1.be374p-1f, 0x1.20d02p0f},
    {0x1.48a718p-2f, 0x1.053f9ap-2f, 0x1.ae36f8p-3f, 0x1.6d10f2p-3f, 0x1.2ac45cp-3f, 0x1.de51p-4f,
     0x1.8d44a4p-4f, 0x1.53c65cp-4f, 0x1.147acep-4f, 0x1.d989b2p-5f, 0x1.ddf632p-1f, 0x1.a3c8ccp-1f,
     0x1.5ee7cap-1f, 0x1.1c55aap-1f, 0x1.dc959cp-2f, 0x1.946c08p-2f},
    {-0x1.4de3ap-3f, -0x1.b49278p-4f, -0x1.2e7ea6p-4f, -0x1.b9da3ap-5f, -0x1.2bd184p-5f,
     -0x1.842a4ap-6f, -0x1.0d5b62p-6f, -0x1.8b82fp-7f, -0x1.06c886p-7f, -0x1.8223fcp-8f,
     -0x1.0323ep0f, -0x1.a50952p-1f, -0x1.39fc1ep-1f, -0x1.b8bd9cp-2f, -0x1.44c254p-2f,
     -0x1.e5e25ap-3f},
    {0x1.36585ep-4f, 0x1.557ccap-5f, 0x1.94ad76p-6f, 0x1.013d14p-6f, 0x1.249acap-7f, 0x1.3518c6p-8f,
     0x1.6859fap-9f, 0x1.c7c154p-10f, 0x1.f01fb4p-11f, 0x1.39474ep-11f, 0x1.bdbab2p-1f,
     0x1.55342ep-1f, 0x1.d1d0c8p-2f, 0x1.23b39cp-2f, 0x1.831a9ap-3f, 0x1.04ae64p-3f},
    {-0x1.0c0df2p-5f, -0x1.f8c9eep-7f, -0x1.02fb46p-7f, -0x1.212faap-8f, -0x1.163944p-9f,
     -0x1.e376d8p-11f, -0x1.dbd13ap-12f, -0x1.04047ep-12f, -0x1.d120b6p-14f, -0x1.f9c9b6p-15f,
     -0x1.470e1cp-1f, -0x1.dc79f8p-2f, -0x1.2df0e2p-2f, -0x1.573c96p-3f, -0x1.a02fcap-4f,
     -0x1.ff72cp-5f},
    {0x1.b30824p-7f, 0x1.63075cp-8f, 0x1.3e8c66p-9f, 0x1.3ac19p-10f, 0x1.024e78p-11f, 0x1.73ca6cp-13f,
     0x1.363e5ap-14f, 0x1.25f0bep-15f, 0x1.b105fp-17f, 0x1.9653c8p-18f, 0x1.a978eap-2f,
     0x1.28bd28p-2f, 0x1.605964p-3f, 0x1.6fb01cp-4f, 0x1.9b67b8p-5f, 0x1.d1bb1ap-6f},
    {-0x1.52e61ep-8f, -0x1.e34e8ap-10f, -0x1.7d3e2p-11f, -0x1.4e3298p-12f, -0x1.df0a16p-14f,
     -0x1.1d6888p-15f, -0x1.953504p-17f, -0x1.4aebcp-18f, -0x1.9a1c82p-20f, -0x1.46ac0cp-21f,
     -0x1.eb984p-3f, -0x1.505ccep-3f, -0x1.7aeaa8p-4f, -0x1.6e8a78p-5f, -0x1.7f0462p-6f,
     -0x1.8d8362p-7f},
    {0x1.f3306p-10f, 0x1.38f5f2p-11f, 0x1.bdee26p-13f, 0x1.6606cep-14f, 0x1.a4f412p-16f,
     0x1.9fe32ep-18f, 0x1.016cb6p-19f, 0x1.605274p-21f, 0x1.86e94ep-23f, 0x1.feff62p-25f,
     0x1.e30aeep-4f, 0x1.61110ap-4f, 0x1.77e7ecp-5f, 0x1.5649bp-6f, 0x1.589082p-7f, 0x1.459ae8p-8f},
};
/* clang-format on */

/* The index is the low 4 or 5 bits of each lane; higher bits are ignored by the instruction. */
SIMD_INLINE vf32 simd_lookup16(const float *table, vi32 index) {
    return _mm512_permutexvar_ps(index, _mm512_load_ps(table));
}
SIMD_INLINE vf32 simd_lookup32(const float *table, vi32 index) {
    return _mm512_permutex2var_ps(_mm512_load_ps(table), index, _mm512_load_ps(table + 16));
}

/* e^x = 2^n e^r with n a multiple of 1/16: the fraction of n is looked up, its floor goes to
   vscalef. Adding 1.5 * 2^19 rounds to multiples of 1/16 and leaves the fraction in the low bits.
   |r| <= log 2 / 32, and 1 + r + r^2 (c2 + c3 r) is good to 2^-29. x in [-104, 89] or NaN. */
SIMD_INLINE vf32 vf32_exp_clamped(vf32 x) {
    vf32 place = vf32_set1(0x1.8p19f), t = vf32_fma(x, vf32_set1(0x1.715476p0f), place);
    vf32 n = vf32_sub(t, place);
    vf32 r = vf32_fnma(n, vf32_set1(0x1.62e4p-1f), x);
    r = vf32_fnma(n, vf32_set1(0x1.7f7d1cp-20f), r);
    vf32 q = vf32_fma(r, vf32_set1(0x1.5555a4p-3f), vf32_set1(0x1.000226p-1f));
    vf32 p = vf32_fma(q, vf32_mul(r, r), r);
    vf32 power = simd_lookup16(simd_exp_lut, vf32_bits(t));
    return vf32_scalef(vf32_fma(power, p, power), n);
}

/* log x = e log 2 - log c + log1p(c m - 1), with x = m 2^e, m in [3/4, 3/2), and c near 1/m from
   the four leading mantissa bits of m: |c m - 1| <= 1/16. Next to x = 1, c is exactly 1 and the
   relative error stays small. */
SIMD_INLINE vf32 vf32_log(vf32 x) {
    vf32 e, m = vf32_log_split(x, &e);
    vi32 index = vi32_shr(vf32_bits(m), 19);
    vf32 c = simd_lookup16(simd_log_reciprocal_lut, index);
    vf32 r = vf32_fma(m, c, vf32_set1(-1));
    vf32 q = vf32_fma(r, vf32_set1(0x1.8259eep-3f), vf32_set1(-0x1.001408p-2f));
    q = vf32_fma(q, r, vf32_set1(0x1.555844p-2f));
    q = vf32_fma(q, r, vf32_set1(-0.5f));
    vf32 p = vf32_fma(q, vf32_mul(r, r), r);
    vf32 base = vf32_fma(e, vf32_set1(0x1.62e43p-1f), simd_lookup16(simd_log_lut, index));
    return vf32_add(base, p);
}

/* tanh: four intervals an octave from 1/8 to 9.1, picked by exponent and two mantissa bits, and one
   below 1/8; a polynomial of degree 5 about the centre of each. From 9.01 on tanh rounds to 1. */
SIMD_INLINE vf32 vf32_tanh(vf32 x) {
    vf32 a = vf32_minb(vf32_set1(9.1f), vf32_abs(x));
    vi32 index = vi32_shr(_mm512_max_epi32(vf32_bits(a), vi32_set1(0x3de00000)), 21);
    vf32 r = vf32_sub(a, simd_lookup32(simd_tanh_lut[0], index));
    vf32 p = simd_lookup32(simd_tanh_lut[6], index);
    p = vf32_fma(p, r, simd_lookup32(simd_tanh_lut[5], index));
    p = vf32_fma(p, r, simd_lookup32(simd_tanh_lut[4], index));
    p = vf32_fma(p, r, simd_lookup32(simd_tanh_lut[3], index));
    p = vf32_fma(p, r, simd_lookup32(simd_tanh_lut[2], index));
    p = vf32_fma(p, r, simd_lookup32(simd_tanh_lut[1], index));
    return vf32_or(p, vf32_sign_of(x));
}

/* erf: intervals of width 1/8 about i/8; adding 1.5 * 2^20 rounds to multiples of 1/8 and leaves i in
   the low bits. About 0 the form x + x P(x^2), with the smaller leading coefficient 2/sqrt(pi) - 1,
   keeps the relative error down. From 3.92 on erf rounds to 1. */
SIMD_INLINE vf32 vf32_erf(vf32 x) {
    vf32 a = vf32_minb(vf32_set1(3.93f), vf32_abs(x)), place = vf32_set1(0x1.8p20f);
    vf32 t = vf32_add(a, place), r = vf32_sub(a, vf32_sub(t, place));
    vi32 index = vf32_bits(t);
    vf32 p = simd_lookup32(simd_erf_lut[5], index);
    p = vf32_fma(p, r, simd_lookup32(simd_erf_lut[4], index));
    p = vf32_fma(p, r, simd_lookup32(simd_erf_lut[3], index));
    p = vf32_fma(p, r, simd_lookup32(simd_erf_lut[2], index));
    p = vf32_fma(p, r, simd_lookup32(simd_erf_lut[1], index));
    vf32 base = simd_lookup32(simd_erf_lut[0], index);
    base = vf32_select(vf32_le(a, vf32_set1(0.0625f)), a, base);
    return vf32_or(vf32_fma(p, r, base), vf32_sign_of(x));
}

/* erfc a = e^(-a^2) times a slow function, a polynomial of degree 6 in each of four intervals an
   octave of a + 3/4, relative error 2^-27.3; erfc(-a) = 2 - erfc a. The exponential is that of
   vf32_exp_clamped, but -a^2 - n log 2 is one fma, so that a^2 is never rounded: 12 bits of log 2
   times the 12 of n are exact. The scaling comes last and rounds subnormals once. Above 10.06 erfc
   rounds to 0. */
SIMD_INLINE vf32 vf32_erfc(vf32 x) {
    vf32 a = vf32_minb(vf32_set1(10.1f), vf32_abs(x));
    vi32 index = vi32_shr(vf32_bits(vf32_add(a, vf32_set1(0.75f))), 21);
    vf32 d = vf32_sub(a, simd_lookup16(simd_erfc_lut[0], index));
    vf32 slow = simd_lookup16(simd_erfc_lut[7], index);
    SIMD_UNROLL for (int k = 6; k >= 1; k--) slow = vf32_fma(slow, d, simd_lookup16(simd_erfc_lut[k], index));
    vf32 place = vf32_set1(0x1.8p19f), t = vf32_fnma(vf32_mul(a, a), vf32_set1(0x1.715476p0f), place);
    vf32 n = vf32_sub(t, place);
    vf32 r = vf32_fnma(a, a, vf32_mul(n, vf32_set1(-0x1.62ep-1f)));
    r = vf32_fnma(n, vf32_set1(0x1.0bfbe8p-15f), r);
    vf32 q = vf32_fma(r, vf32_set1(0x1.5555a4p-3f), vf32_set1(0x1.000226p-1f));
    vf32 p = vf32_fma(q, vf32_mul(r, r), r);
    slow = vf32_mul(slow, simd_lookup16(simd_exp_lut, vf32_bits(t)));
    vf32 y = vf32_scalef(vf32_fma(slow, p, slow), n);
    return vf32_select(vf32_lt(x, vf32_zero()), vf32_sub(vf32_set1(2), y), y);
}

/* The part of ndtr that decides its speed: |x| below 3.93, where the table holds its values at -|x| with a relative
   error of 2^-23.8. */
#define VF32_NDTR_NEAR 3.93f
SIMD_INLINE vf32 vf32_ndtr_near(vf32 x) {
    vf32 a = vf32_minb(vf32_set1(VF32_NDTR_NEAR), vf32_abs(x)), place = vf32_set1(0x1.8p20f);
    vf32 t = vf32_add(a, place), r = vf32_sub(a, vf32_sub(t, place));
    vi32 index = vf32_bits(t);
    vf32 p = simd_lookup32(simd_ndtr_lut[6], index);
    SIMD_UNROLL for (int k = 5; k >= 0; k--) p = vf32_fma(p, r, simd_lookup32(simd_ndtr_lut[k], index));
    return vf32_select(vf32_gt(x, vf32_zero()), vf32_sub(vf32_set1(1), p), p);
}
