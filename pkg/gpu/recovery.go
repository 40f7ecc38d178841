package gpu

// Recovery is an action that a GPU asks for.
type Recovery struct {
	Observed, Hint  string // of the check before a job starts
	Meaning, Action string // while one runs
	Now             Effect // on that
}

// Recoveries are the values of nvmlDeviceGpuRecoveryAction_t except 0 (none): the words of the check before the job
// starts, and what they are while it runs. No new job is to start with any of them.
//
// Which can wait for the end of the job is by NVIDIA's words (nvidia-smi's manual, "GPU Recovery Action"): with 1 all
// processes are to be terminated, and after 2 no application can start again; with 3 applications are to be stopped
// "when convenient", where DCGM only warns too, and with 4 existing work that was not affected is safe to continue. With
// 5 the driver refuses new memory of the fabric, and ends by itself who has imported some (open-gpu-kernel-modules,
// imex_session_api.c). DCGM's range check drops 5, which drivers from 575 on have; 6 and 7, which come with NVML 615,
// have no words but their names, and are taken for 1 and 2.
var Recoveries = map[int]Recovery{
	1: {"reset the GPU", "drain the node and reset the GPU (nvidia-smi --gpu-reset)",
		"the GPU asks to be reset", "drain the node, and reset the GPU", EffectFatal},
	2: {"reboot the node", "drain and reboot the node",
		"the GPU asks for a reboot of the node", "drain the node, and reboot it", EffectFatal},
	3: {"end all work that reaches it from other GPUs", "drain the node, and end what runs on all of its GPUs: they reach this one",
		"the GPU asks that all traffic from other GPUs ends", "drain the node, and end what uses the GPU over NVLink when convenient", EffectWarn},
	4: {"end all work that reaches it, and reset it", "drain the node, end what runs on all of its GPUs, and reset this one (nvidia-smi --gpu-reset)",
		"the GPU asks to be drained and reset", "drain the node, and reset the GPU when the job has ended", EffectWarn},
	5: {"recover the IMEX domain", "restart nvidia-imex on all nodes of the NVLink domain",
		"the GPU asks for a recovery of its IMEX domain", "drain the node, and recover the IMEX domain: see nvidia-imex-ctl", EffectWarn},
	6: {"reset its PCIe bus", "drain the node, and reset the GPU's PCIe bus, or reboot the node",
		"the GPU asks for a reset of its PCIe bus", "drain the node, and reset the GPU's PCIe bus, or reboot the node", EffectFatal},
	7: {"reboot the system", "drain and reboot the node",
		"the GPU asks for a reboot of the system", "drain the node, and reboot it", EffectFatal},
}
