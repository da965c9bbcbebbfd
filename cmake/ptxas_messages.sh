#!/usr/bin/env bash
# ptxas_messages.sh COMMAND...: runs a command that compiles CUDA sources. Fails, too, if ptxas reports that it serialized warpgroup products
# (wgmma) or inserted waits between them (C7508 to C7520): such a kernel is right but slow. ptxas prints these reports as information and has
# no option that makes them errors.
{ messages=$("$@" 2>&1 1>&3); code=$?; } 3>&1
[[ -z $messages ]] || printf '%s\n' "$messages" >&2
if grep -qE '\(C75(0[89]|1[0-9]|20)\)' <<<"$messages"; then
  echo "error: ptxas serialized warpgroup products; see its reports above" >&2
  exit 1
fi
exit "$code"
