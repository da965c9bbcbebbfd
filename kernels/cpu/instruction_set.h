#pragma once

namespace tessera::kernels {

/// Vector instructions that the CPU kernels are compiled for; each kernel keeps one copy of its inner loops for each.
enum class InstructionSet { kPortable, kAvx2, kAvx512 };

/// The best that this machine has, or what use_instruction_set chose.
InstructionSet instruction_set();

/// For tests: "portable", "avx2" or "avx512" from now on, "" for the best that this machine has. False, and nothing
/// changes, if it lacks the one asked for. Not while a kernel runs.
bool use_instruction_set(const char* name);

}  // namespace tessera::kernels
