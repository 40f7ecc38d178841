package launcher

// palsStarter is mpiexec or aprun of HPE's PALS, also under PBS. Only PMI's variable has the number
// of ranks.
var palsStarter = rankStarter{
	displayName: "PALS", markVariable: "PALS_RANKID",
	variableNames: rankVariables{
		rank: []string{"PALS_RANKID"}, rankCount: []string{"PMI_SIZE"},
		localRank: []string{"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"}, localCount: []string{"PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"},
		nodeIndex: []string{"PALS_NODEID"},
	},
	servesPMI:       true,
	privatePrefixes: []string{"PALS_", "ALPS_APP_"},
}

// jsrunStarter is jsrun of IBM's job step manager, under LSF.
var jsrunStarter = rankStarter{
	displayName: "jsrun", markVariable: "JSM_NAMESPACE_RANK",
	variableNames: rankVariables{
		rank: []string{"JSM_NAMESPACE_RANK"}, rankCount: []string{"JSM_NAMESPACE_SIZE"},
		localRank: []string{"JSM_NAMESPACE_LOCAL_RANK"}, localCount: []string{"JSM_NAMESPACE_LOCAL_SIZE"},
	},
	privatePrefixes: []string{"JSM_NAMESPACE_"},
}
