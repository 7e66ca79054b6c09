// Walking over the positions of images: image and three coordinates, the last innermost.

// The place so many positions further on, without a division: for few of them.
fn ct_onward(at: vec4<u32>, by: u32, size: vec3<u32>) -> vec4<u32> {
    var to = at;
    to.w += by;
    while (to.w >= size.z) {
        to.w -= size.z;
        to.z += 1u;
    }
    while (to.z >= size.y) {
        to.z -= size.y;
        to.y += 1u;
    }
    while (to.y >= size.x) {
        to.y -= size.x;
        to.x += 1u;
    }
    return to;
}
