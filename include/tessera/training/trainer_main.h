#pragma once

namespace tessera {

/// Runs the program `trainer` inside a program with its own objectives, encoders, sources or tokenizers. Register them before the
/// call (`objectives().add<Settings>(name, help, factory)`). All options (--config, --set, --resume, --nproc, --dry-run, ...), a
/// run's files and the exit codes are those of trainer. With --nproc the program starts itself again, so every process must register
/// before the call. Messages begin with the program's own name. Returns the exit code.
int trainer_main(int argc, char** argv);

}  // namespace tessera
