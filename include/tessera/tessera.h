#pragma once

/// Includes everything that a program using Tessera needs. Where compile time matters, include individual headers instead.

#include <tessera/batch.h>
#include <tessera/config/registry.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/distributed/process_group.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/task.h>
#include <tessera/features.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/models/model_file.h>
#include <tessera/models/registry.h>
#include <tessera/objectives/objective.h>
#include <tessera/ops/flops_regularizer.h>
#include <tessera/ops/max_similarity.h>
#include <tessera/ops/sparsify_group.h>
#include <tessera/training/config/config.h>
#include <tessera/training/trainer_main.h>
