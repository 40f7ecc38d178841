#!/bin/sh
# with_programs.sh LLAMA TORCH OPENAI ROUTERS COMMAND...: runs a command with the programs of the
# examples of roles in PATH, and with a tiny model. Each server writes its process id to a file named
# after its instance, and its port to one with .port. The standard output is in the file said.
export LLAMA=$1 TORCH=$2 OPENAI=$3 PATH=$PWD/bin:$4:$PATH
export SERVE=serve MODEL=tiny.gguf PYTHONDONTWRITEBYTECODE=1
shift 4
mkdir bin
cat >bin/python <<'EOF'
#!/bin/sh
PYTHONPATH=$OPENAI exec "$TORCH" "$@"
EOF
cat >bin/serve <<'EOF'
#!/bin/sh
instance=$BRINGUPD_ROLE.$BRINGUPD_ROLE_INDEX
echo $BRINGUPD_PORT >$instance.port
echo $$ >$instance
exec "$LLAMA" examples/roles/llama_server.py "$@"
EOF
chmod +x bin/*
"$LLAMA" examples/roles/tiny_model.py $MODEL
exec "$@" >said
