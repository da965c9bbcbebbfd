#pragma once

namespace tessera::kernels {

/// The vector instructions for which the CPU kernels are compiled. Each kernel's inner loops are compiled once for each instruction set.
enum class InstructionSet { kPortable, kAvx2, kAvx512 };

/// Returns the best instruction set of this machine, or the one that use_instruction_set selected.
InstructionSet instruction_set();

/// For tests: selects "portable", "avx2" or "avx512"; "" selects the best that this machine has. Changes nothing and
/// returns false if the machine lacks the instruction set. Must not be called while a kernel runs.
bool use_instruction_set(const char* name);

}  // namespace tessera::kernels
