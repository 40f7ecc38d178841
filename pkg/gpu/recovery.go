package gpu

// Recovery is an action that a GPU asks for, in words.
type Recovery struct {
	Observed, Hint  string // of the check before a job starts
	Meaning, Action string // while it runs
}

// Recoveries are the values of nvmlDeviceGpuRecoveryAction_t except 0 (none). DCGM's range check drops 5, which drivers from 575 on have.
var Recoveries = map[int]Recovery{
	1: {"reset the GPU", "drain the node and reset the GPU (nvidia-smi --gpu-reset)",
		"the GPU asks to be reset", "drain the node, and reset the GPU"},
	2: {"reboot the node", "drain and reboot the node",
		"the GPU asks for a reboot of the node", "drain the node, and reboot it"},
	3: {"end all work that reaches it from other GPUs", "drain the node, and end what runs on all of its GPUs: they reach this one",
		"the GPU asks that all traffic from other GPUs ends", "end what uses the GPU over NVLink"},
	4: {"end all work that reaches it, and reset it", "drain the node, end what runs on all of its GPUs, and reset this one (nvidia-smi --gpu-reset)",
		"the GPU asks to be drained and reset", "end what uses the GPU over NVLink, drain the node, and reset the GPU"},
	5: {"recover the IMEX domain", "restart nvidia-imex on all nodes of the NVLink domain",
		"the GPU asks for a recovery of its IMEX domain", "recover the IMEX domain: see nvidia-imex-ctl"},
}
