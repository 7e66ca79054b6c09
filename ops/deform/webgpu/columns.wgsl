// deform_columns and its gradients. An invocation finds the four pixels around the place of one tap, once for several
// channels. All tensors are dense, channels first.
//
// The gradient of x is summed by atomics on integers, so that the order does not matter: fixed point relative to the
// largest exponent of a plane's gradient, in three limbs of p.bits bits, whose sums have room to grow. A workgroup has
// CHUNK elements of a plane, and goes over all that might reach them. Where a plane's gradient is not finite, all of
// the plane is NaN.

struct Params {
    batch: u32, channels: u32, height: i32, width: i32,
    out_h: u32, out_w: u32, kernel_h: u32, kernel_w: u32,
    stride_y: i32, stride_x: i32, pad_y: i32, pad_x: i32,
    dilation_y: i32, dilation_x: i32, offset_groups: u32, bits: u32,
}

const RUN = 16u;     // channels of an invocation
const CHUNK = 1152u; // with what comes beside it 16 KiB of workgroup memory are enough

struct Place {
    at: vec4<i32>, // of the pixels, -1 outside of x
    weight: vec4<f32>,
    down: f32, right: f32, mask: f32,
}

fn find(image: u32, group: u32, tap: u32, pixel: u32) -> Place {
    let taps = p.kernel_h * p.kernel_w;
    let pixels = p.out_h * p.out_w;
    let row = (image * p.offset_groups + group) * taps + tap;
    let offset_at = 2u * row * pixels + pixel;
    let y = offset_load(offset_at) +
            f32(i32(pixel / p.out_w) * p.stride_y - p.pad_y + i32(tap / p.kernel_w) * p.dilation_y);
    let x = offset_load(offset_at + pixels) +
            f32(i32(pixel % p.out_w) * p.stride_x - p.pad_x + i32(tap % p.kernel_w) * p.dilation_x);
    var found: Place;
    found.mask = 1.0;
    if (mask_given) { found.mask = mask_load(row * pixels + pixel); }
    found.at = vec4<i32>(-1);
    if (!(y >= -1.0 && y < f32(p.height) && x >= -1.0 && x < f32(p.width))) { return found; } // a NaN is nowhere
    let low_y = i32(floor(y));
    let low_x = i32(floor(x));
    let down = y - f32(low_y);
    let right = x - f32(low_x);
    let top = low_y >= 0;
    let bottom = low_y + 1 < p.height;
    let before = low_x >= 0;
    let behind = low_x + 1 < p.width;
    let corner = low_y * p.width + low_x;
    found.at = vec4<i32>(select(-1, corner, top && before), select(-1, corner + 1, top && behind),
                         select(-1, corner + p.width, bottom && before),
                         select(-1, corner + p.width + 1, bottom && behind));
    found.weight = vec4<f32>((1.0 - down) * (1.0 - right), (1.0 - down) * right, down * (1.0 - right), down * right);
    found.down = down;
    found.right = right;
    return found;
}

fn pixel_of(plane: u32, at: i32) -> f32 {
    if (at < 0) { return 0.0; }
    return x_load(plane * u32(p.height * p.width) + u32(at));
}

// Blocks of places, then taps, then runs of channels.
fn columns(group: u32, local: u32, groups: u32) {
    let taps = p.kernel_h * p.kernel_w;
    let pixels = p.out_h * p.out_w;
    let each = p.channels / p.offset_groups;
    let blocks = (p.batch * pixels + THREADS - 1u) / THREADS;
    let at = group % blocks * THREADS + local;
    let tap = group / blocks % taps;
    let first = group / blocks / taps * RUN;
    if (at >= p.batch * pixels) { return; }
    let image = at / pixels;
    let pixel = at % pixels;
    var offsets = 0xffffffffu;
    var found: Place;
    for (var channel = first; channel < min(first + RUN, p.channels); channel++) {
        if (channel / each != offsets) {
            offsets = channel / each;
            found = find(image, offsets, tap, pixel);
        }
        let plane = image * p.channels + channel;
        var sum = 0.0;
        for (var i = 0u; i < 4u; i++) {
            if (found.at[i] >= 0) { sum += found.weight[i] * pixel_of(plane, found.at[i]); }
        }
        columns_store((plane * taps + tap) * pixels + pixel, sum * found.mask);
    }
}

// Gradients of offset and mask: an invocation for each place of a tap in a group of offsets.
fn offset_grad(group: u32, local: u32, groups: u32) {
    let taps = p.kernel_h * p.kernel_w;
    let pixels = p.out_h * p.out_w;
    let each = p.channels / p.offset_groups;
    let blocks = (p.batch * pixels + THREADS - 1u) / THREADS;
    let at = group % blocks * THREADS + local;
    let tap = group / blocks % taps;
    let offsets = group / blocks / taps;
    if (at >= p.batch * pixels) { return; }
    let image = at / pixels;
    let pixel = at % pixels;
    let found = find(image, offsets, tap, pixel);
    var whole = 0.0;
    var down = 0.0;
    var right = 0.0;
    for (var channel = offsets * each; channel < (offsets + 1u) * each; channel++) {
        let plane = image * p.channels + channel;
        let g = columns_load((plane * taps + tap) * pixels + pixel);
        let v = vec4<f32>(pixel_of(plane, found.at.x), pixel_of(plane, found.at.y), pixel_of(plane, found.at.z),
                          pixel_of(plane, found.at.w));
        let above = v.x + found.right * (v.y - v.x);
        let below = v.z + found.right * (v.w - v.z);
        let beside = (v.y - v.x) + found.down * ((v.w - v.z) - (v.y - v.x));
        whole += g * (above + found.down * (below - above));
        down += g * (below - above);
        right += g * beside;
    }
    let row = (image * p.offset_groups + offsets) * taps + tap;
    if (doffset_given) {
        doffset_store(2u * row * pixels + pixel, down * found.mask);
        doffset_store((2u * row + 1u) * pixels + pixel, right * found.mask);
    }
    if (dmask_given) { dmask_store(row * pixels + pixel, whole); }
}

// ---- The gradient of x ----

var<workgroup> limbs: array<atomic<i32>, 3u * CHUNK>;
var<workgroup> largest: array<u32, THREADS>;

fn power(k: i32) -> f32 { return bitcast<f32>(u32(127 + k) << 23u); }
// In two steps, as 2^k alone may be no number.
fn scaled(x: f32, k: i32) -> f32 { return x * power(k / 2) * power(k - k / 2); }

fn input_grad(group: u32, local: u32, groups: u32) {
    let taps = p.kernel_h * p.kernel_w;
    let pixels = p.out_h * p.out_w;
    let places = u32(p.height * p.width);
    let chunks = (places + CHUNK - 1u) / CHUNK;
    let plane = group / chunks;
    let first = group % chunks * CHUNK;
    let image = plane / p.channels;
    let offsets = plane % p.channels / (p.channels / p.offset_groups);
    let g_base = plane * taps * pixels;
    let mask_base = (image * p.offset_groups + offsets) * taps * pixels;
    for (var i = local; i < 3u * CHUNK; i += THREADS) { atomicStore(&limbs[i], 0); }
    var most = 1u;
    for (var i = local; i < taps * pixels; i += THREADS) {
        var g = columns_load(g_base + i);
        if (mask_given) { g *= mask_load(mask_base + i); }
        most = max(most, (bitcast<u32>(g) >> 23u) & 0xffu);
    }
    largest[local] = most;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (local < half) { largest[local] = max(largest[local], largest[local + half]); }
    }
    workgroupBarrier();
    let exponent = i32(largest[0]); // all are below 2^(exponent - 126)
    let one = f32(1u << p.bits);
    for (var i = local; i < taps * pixels && exponent < 255; i += THREADS) {
        let found = find(image, offsets, i / pixels, i % pixels);
        let g = scaled(columns_load(g_base + i) * found.mask, 126 - exponent);
        for (var j = 0u; j < 4u; j++) {
            let at = u32(found.at[j]) - first;
            if (found.at[j] < 0 || at >= CHUNK) { continue; }
            let high = g * found.weight[j] * one;
            let middle = (high - floor(high)) * one;
            let low = (middle - floor(middle)) * one;
            atomicAdd(&limbs[at], i32(floor(low + 0.5)));
            atomicAdd(&limbs[CHUNK + at], i32(floor(middle)));
            atomicAdd(&limbs[2u * CHUNK + at], i32(floor(high)));
        }
    }
    workgroupBarrier();
    for (var i = local; i < CHUNK && first + i < places; i += THREADS) {
        // carried on, so that none of the lower two is more than its bits
        var low = atomicLoad(&limbs[i]);
        var middle = atomicLoad(&limbs[CHUNK + i]) + (low >> p.bits);
        let high = atomicLoad(&limbs[2u * CHUNK + i]) + (middle >> p.bits);
        low &= (1 << p.bits) - 1;
        middle &= (1 << p.bits) - 1;
        let sum = (f32(high) * one + f32(middle)) * one + f32(low);
        var result = scaled(sum, exponent - 126 - i32(3u * p.bits));
        if (exponent == 255) { result = ct_nan(); }
        dx_store(plane * places + first + i, result);
    }
}
