/* Pipelines. Drivers take from a millisecond to a second to compile one, and a program meets most of its shaders in its first steps. So a text
 * is written when a dispatch needs it, but compiled only when commands have to be submitted: all texts that have gathered, on the library's
 * threads. Until then the dispatches wait (queue.c). */
#include <stdio.h>
#include <stdlib.h>

#include "backends/webgpu/shader.h"

static bool make_layouts(ct_wgpu_device *d, int n) {
    if (d->layouts[n]) return true;
    ct_wgpu_push(d);
    const WGPUBindGroupLayoutEntry none = WGPU_BIND_GROUP_LAYOUT_ENTRY_INIT;
    WGPUBindGroupLayoutEntry entries[CT_WGPU_SLOTS + 2];
    for (int i = 0; i <= n; i++) {
        entries[i] = none;
        entries[i].binding = (uint32_t)i;
        entries[i].visibility = WGPUShaderStage_Compute;
        entries[i].buffer.type = i ? WGPUBufferBindingType_Storage : WGPUBufferBindingType_Uniform;
        entries[i].buffer.hasDynamicOffset = i == 0;
    }
    WGPUBindGroupLayoutDescriptor groups = WGPU_BIND_GROUP_LAYOUT_DESCRIPTOR_INIT;
    groups.entryCount = (size_t)n + 1;
    groups.entries = entries;
    d->group_layouts[n] = ct_wgpu.DeviceCreateBindGroupLayout(d->device, &groups);
    WGPUPipelineLayoutDescriptor layout = WGPU_PIPELINE_LAYOUT_DESCRIPTOR_INIT;
    layout.bindGroupLayoutCount = 1;
    layout.bindGroupLayouts = &d->group_layouts[n];
    d->layouts[n] = ct_wgpu.DeviceCreatePipelineLayout(d->device, &layout);
    return !ct_wgpu_pop(d) && d->layouts[n];
}

/* CT_WEBGPU_DUMP names a folder that every text is written to, under a name of its own. */
static void dump(const char *text, const ct_wgpu_launch *launch) {
    const char *folder = getenv("CT_WEBGPU_DUMP");
    if (!folder || !*folder) return;
    char path[512];
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *s = text; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    snprintf(path, sizeof path, "%s/%s-%s-%016llx.wgsl", folder, launch->unit->name, launch->function,
             (unsigned long long)h);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fputs(text, file);
    fclose(file);
}

static WGPUShaderModule compile(ct_wgpu_device *d, const char *text) {
    WGPUShaderSourceWGSL source = {.chain = {.sType = WGPUSType_ShaderSourceWGSL}, .code = ct_wgpu_string(text)};
    WGPUShaderModuleDescriptor descriptor = WGPU_SHADER_MODULE_DESCRIPTOR_INIT;
    descriptor.nextInChain = &source.chain;
    /* Our kernels stay inside of their memory and end; checks of the runtime's would cost what they save. */
    return ct_wgpu.native.DeviceCreateShaderModuleTrusted
               ? ct_wgpu.native.DeviceCreateShaderModuleTrusted(d->device, &descriptor, 0)
               : ct_wgpu.DeviceCreateShaderModule(d->device, &descriptor);
}

static void unmake(ct_wgpu_pipeline *p) {
    if (p->made) ct_wgpu.ComputePipelineRelease(p->made);
    p->made = NULL;
}

void ct_wgpu_pipeline_free(ct_wgpu_pipeline *p) {
    if (!p) return;
    unmake(p);
    free(p->text);
    free(p);
}

bool ct_wgpu_pipeline_again(ct_wgpu_device *d, ct_wgpu_pipeline *p, const char *op) {
    if (d->n_uncompiled == d->uncompiled_room) {
        const int room = d->uncompiled_room ? 2 * d->uncompiled_room : 64;
        ct_wgpu_pipeline **grown = realloc(d->uncompiled, (size_t)room * sizeof *grown);
        if (!grown) return ct_wgpu_host->fail(CT_ERR_MEMORY, op, "no memory for a shader");
        d->uncompiled = grown;
        d->uncompiled_room = room;
    }
    p->waits = true;
    d->uncompiled[d->n_uncompiled++] = p;
    return true;
}

ct_wgpu_pipeline *ct_wgpu_pipeline_of(ct_wgpu_device *d, const ct_wgpu_launch *launch, const ct_wgpu_plan *plan,
                                      bool lasting, const char *op) {
    ct_wgpu_pipeline *p = calloc(1, sizeof *p);
    if (p) p->text = ct_wgpu_shader(launch, plan, lasting, &p->notes);
    if (!p || !p->text) {
        ct_wgpu_pipeline_free(p);
        return ct_wgpu_host->fail(CT_ERR_MEMORY, op, "no memory for a shader"), NULL;
    }
    dump(p->text, launch);
    p->slots = plan->n_slots + p->notes;
    if (!make_layouts(d, p->slots)) {
        ct_wgpu_host->fail(CT_ERR_DEVICE, op, "no layout of %d bindings can be made", p->slots);
        ct_wgpu_pipeline_free(p);
        return NULL;
    }
    p->function = launch->function;
    p->unit = launch->unit->name;
    p->op = op;
    if (ct_wgpu_pipeline_again(d, p, op)) return p;
    ct_wgpu_pipeline_free(p);
    return NULL;
}

void ct_wgpu_pipeline_drop(ct_wgpu_device *d, ct_wgpu_pipeline *p) {
    if (d->n_uncompiled && d->uncompiled[d->n_uncompiled - 1] == p) d->n_uncompiled--;
    ct_wgpu_pipeline_free(p);
}

/* ---- Compiling ---- */

static void compile_one(ct_wgpu_device *d, ct_wgpu_pipeline *p) {
    WGPUShaderModule module = p->made ? NULL : compile(d, p->text);
    if (!module) return;
    WGPUComputePipelineDescriptor descriptor = WGPU_COMPUTE_PIPELINE_DESCRIPTOR_INIT;
    descriptor.layout = d->layouts[p->slots];
    descriptor.compute.module = module;
    descriptor.compute.entryPoint = ct_wgpu_string("main");
    p->made = ct_wgpu.DeviceCreateComputePipeline(d->device, &descriptor);
    ct_wgpu.ShaderModuleRelease(module);
}

static void compile_task(void *context, int64_t chunk, int worker) {
    (void)worker;
    ct_wgpu_device *d = context;
    compile_one(d, d->uncompiled[chunk]);
}

/* Who made the error: all once more, one after the other. The first that fails is raised; those that fail are tried again when they are
 * used again. */
static bool blame(ct_wgpu_device *d) {
    bool whole = true;
    for (int i = 0; i < d->n_uncompiled; i++) unmake(d->uncompiled[i]);
    for (int i = 0; i < d->n_uncompiled; i++) {
        ct_wgpu_pipeline *p = d->uncompiled[i];
        ct_wgpu_push(d);
        compile_one(d, p);
        const char *error = ct_wgpu_pop(d);
        if (!error && p->made) continue;
        unmake(p);
        if (whole)
            ct_wgpu_host->fail(CT_ERR_DEVICE, p->op, "shader %s of %s: %s", p->function, p->unit,
                               error ? error : "it cannot be compiled");
        whole = false;
    }
    return whole;
}

bool ct_wgpu_pipelines_make(ct_wgpu_device *d) {
    if (!d->n_uncompiled) return true;
    bool whole = true;
    ct_wgpu_push(d);
    ct_wgpu_host->parallel(d->n_uncompiled, compile_task, d);
    whole &= ct_wgpu_pop(d) == NULL;
    whole &= !atomic_exchange(&d->failed, false); /* a runtime may have a scope for each thread */
    for (int i = 0; i < d->n_uncompiled; i++) whole &= d->uncompiled[i]->made != NULL;
    if (!whole) whole = blame(d);
    for (int i = 0; i < d->n_uncompiled; i++) {
        ct_wgpu_pipeline *p = d->uncompiled[i];
        p->waits = false;
        if (!p->made) continue;
        free(p->text);
        p->text = NULL;
    }
    d->n_uncompiled = 0;
    return whole;
}

void ct_wgpu_pipelines_close(ct_wgpu_device *d) {
    d->n_uncompiled = 0;
    for (int i = 0; i < CT_WGPU_SLOTS + 2; i++) {
        if (d->layouts[i]) ct_wgpu.PipelineLayoutRelease(d->layouts[i]);
        if (d->group_layouts[i]) ct_wgpu.BindGroupLayoutRelease(d->group_layouts[i]);
        d->layouts[i] = NULL;
        d->group_layouts[i] = NULL;
    }
}
