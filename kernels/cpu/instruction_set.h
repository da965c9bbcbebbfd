#pragma once

namespace tessera::kernels {

/// The vector instructions for which the CPU kernels are compiled. Each kernel has one copy of its inner loops for each
/// of them.
enum class InstructionSet { kPortable, kAvx2, kAvx512 };

/// Returns the best instruction set of this machine, or the one that use_instruction_set selected.
InstructionSet instruction_set();

/// For tests: selects "portable", "avx2" or "avx512". With "", selects the best that this machine has. If the machine
/// lacks it, changes nothing and returns false. Must not be called while a kernel runs.
bool use_instruction_set(const char* name);

}  // namespace tessera::kernels
