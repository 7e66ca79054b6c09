#!/usr/bin/env bash
# A short part of `make test-webgpu` (tests/webgpu.sh).
exec bash "$(dirname "${BASH_SOURCE[0]}")/webgpu.sh" short
