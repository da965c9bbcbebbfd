#pragma once

namespace tessera {

/// Runs `trainer` inside a program that adds its own objectives, encoders, sources or tokenizers. The program must register its additions
/// before the call (`objectives().add<Settings>(name, help, factory)`). All options (--config, --set, --resume, --nproc, --dry-run, ...),
/// the files of a run and the exit codes are the same as those of trainer. With --nproc, the program starts copies of itself, so every
/// process must register its additions before the call. Messages begin with the program's own name. Returns the exit code.
int trainer_main(int argc, char** argv);

}  // namespace tessera
