#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/types.h"

/// Operators with several implementations of the same computation (configurations) ask a table which one to use. `tessera-bench tune`
/// writes the table for a GPU. Nothing is measured while a program runs, because configurations differ in the order of their sums, and runs
/// must be repeatable.
namespace tessera {

/// What the choice of a configuration depends on.
struct TuningKey {
  std::string op;  // the operator's name, such as "sparsify_group"
  kernels::Pass pass = kernels::Pass::kForward;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape;  // the class of the problem's sizes, which the operator defines

  auto operator<=>(const TuningKey&) const = default;
};

struct TuningChoice {
  std::string configuration;
  std::string library;                         // the library to which the configuration belongs, such as "cublas"; empty for Tessera
  std::map<std::string, double> microseconds;  // what was measured, by configuration
};

/// The choices for one GPU.
struct TuningTable {
  std::string file;                              // where the table was read; empty if there is none
  std::string gpu;                               // as machine_name() returns it
  std::map<std::string, std::string> libraries;  // versions of the libraries with which the choices were measured
  std::map<TuningKey, TuningChoice> choices;
  std::string outdated;  // says which choices are missing because their library has another version now; empty if none are

  /// Returns 16 hexadecimal digits that differ if the choices differ, or "built-in" if there are none.
  std::string digest() const;
};

/// Reads a table. Throws UserError naming the file and the key if the file does not hold one.
TuningTable read_tuning_table(const std::string& file);
std::string to_json(const TuningTable& table);

/// Returns the table in `named`, or, if that is empty, the table that ships for this GPU (share/tessera/tuning); an empty table if there is
/// none. Leaves out the choices that belong to a library of another version. Throws UserError for a table of another GPU.
TuningTable find_tuning_table(const std::string& named, const std::string& gpu, const std::map<std::string, std::string>& libraries);

/// Returns the name of the file in which a GPU's table ships: "nvidia-h100-80gb-hbm3.json".
std::string tuning_file_name(const std::string& gpu);

/// Returns the name that the driver reports for a GPU, such as "NVIDIA H100 80GB HBM3".
std::string gpu_name(int index);

/// Returns the versions of LibTorch and of the libraries with it that have configurations of their own: torch, cublas and cudnn. Libraries
/// that are not loaded are missing.
std::map<std::string, std::string> library_versions();

/// Returns the table of this process, for the current GPU. The first call reads it: the file in the environment variable TESSERA_TUNING, or
/// else the table that ships for the GPU. Call it only if there is a GPU.
const TuningTable& tuning_table();

/// Returns the configuration of the table for a problem on the current GPU; null if the operator's own rule chooses. `known` are the
/// operator's configurations; an empty list allows any name. Throws UserError naming the file if the table names another one.
const char* tuned_configuration(const TuningKey& key, const std::vector<std::string>& known = {});

/// Throws UserError: the table's choice for `key` cannot be used, because of `mistake`.
[[noreturn]] void refuse_tuned_configuration(const TuningKey& key, const std::string& mistake);

/// While it exists, the operator uses this configuration for this key, on any device. For measurements and tests, one at a time.
class ForcedConfiguration {
 public:
  ForcedConfiguration(const TuningKey& key, const std::string& configuration);
  ~ForcedConfiguration();
  ForcedConfiguration(const ForcedConfiguration&) = delete;
  ForcedConfiguration& operator=(const ForcedConfiguration&) = delete;
};

}  // namespace tessera
