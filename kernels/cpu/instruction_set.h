#pragma once

namespace tessera::kernels {

/// Vector instructions that the CPU kernels are compiled for; each kernel has a copy of its inner loops for each of
/// them.
enum class InstructionSet { kPortable, kAvx2, kAvx512 };

/// Returns the best instruction set of this machine, or the one that use_instruction_set selected.
InstructionSet instruction_set();

/// For tests: selects "portable", "avx2" or "avx512", or with "" the best that this machine has. Returns false and
/// changes nothing if the machine lacks it. Must not be called while a kernel runs.
bool use_instruction_set(const char* name);

}  // namespace tessera::kernels
