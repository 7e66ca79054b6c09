// The activations of epilogues, as the ops of these names compute them (ops/elementwise/activation.def), and their
// derivatives from results. The numbers are those of enum ct_activation.

fn ct_activate(activation: u32, x: f32) -> f32 {
    switch (activation) {
        case 1u: { return select(x, 0.0, x <= 0.0); }
        case 2u: { return ct_sigmoid(x); }
        case 3u: { return ct_tanh(x); }
        case 4u: { return x * ct_ndtr(x); }
        case 5u: { return x * ct_sigmoid(x); }
        default: { return x; }
    }
}

// g times the derivative where the result is y; of activations whose derivative is a function of the result.
fn ct_activation_grad(activation: u32, y: f32, g: f32) -> f32 {
    switch (activation) {
        case 1u: { return select(g, 0.0, y <= 0.0); }
        case 2u: { return g * (y * (1.0 - y)); }
        case 3u: { return g * (1.0 - y * y); }
        default: { return g; }
    }
}
