#pragma once

namespace tessera {

/// The program `trainer`, for a program that brings objectives, encoders, sources or tokenizers of its own: they are registered
/// before the call (`objectives().add<Settings>(name, help, factory)`), and the rest, all options (--config, --set, --resume,
/// --nproc, --dry-run, ...), a run's files and the exit codes, is the trainer's. With --nproc the program starts itself again, so
/// registering must come before the call in every process. Messages begin with the program's own name. Returns the exit code.
int trainer_main(int argc, char** argv);

}  // namespace tessera
