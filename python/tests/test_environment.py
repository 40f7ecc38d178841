import os
import tempfile
import unittest

import bringupd
from bringupd import Endpoint

DRIVER = {
    "BRINGUPD_RUN": "53.0",
    "BRINGUPD_RUN_DIR": "/shared/logs/53.0",
    "BRINGUPD_ATTEMPT": "1",
    "BRINGUPD_HOSTS": "n0,n1",
    "BRINGUPD_NODE_HOST": "n0",
    "BRINGUPD_NODE_RANK": "0",
    "BRINGUPD_NODE_COUNT": "2",
    "BRINGUPD_LAUNCH_RANK": "1",
    "BRINGUPD_LAUNCH_COUNT": "3",
}
RANK = {"BRINGUPD_RANK": "5", "BRINGUPD_RANKS": "8", "BRINGUPD_LOCAL_RANK": "1", "BRINGUPD_LOCAL_RANKS": "4"}
ROLE = {"BRINGUPD_ROLE": "judge", "BRINGUPD_ROLE_INDEX": "2", "BRINGUPD_ROLE_COUNT": "8"}


class TestEnvironment(unittest.TestCase):
    def test_run(self) -> None:
        run = bringupd.Run.from_environment(DRIVER)
        self.assertEqual(run, bringupd.Run("53.0", "/shared/logs/53.0", 1, ("n0", "n1"), "", ""))

    def test_service_has_no_hosts(self) -> None:
        service = {name: value for name, value in DRIVER.items() if name != "BRINGUPD_HOSTS"}
        self.assertEqual(bringupd.Run.from_environment(service).hosts, ())

    def test_node(self) -> None:
        node = bringupd.Node.from_environment(DRIVER)
        self.assertEqual(node, bringupd.Node("n0", "", "", 0, 2, 1, 3))
        spare = {**DRIVER, "BRINGUPD_NODE_RANK": "", "BRINGUPD_NODE_COUNT": ""}
        self.assertIsNone(bringupd.Node.from_environment(spare).index)

    def test_rank(self) -> None:
        self.assertEqual(bringupd.Rank.from_environment(RANK), bringupd.Rank(5, 8, 1, 4, "", None))
        torch = {**RANK, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4711"}
        self.assertEqual(bringupd.Rank.from_environment(torch), bringupd.Rank(5, 8, 1, 4, "10.0.0.1", 4711))

    def test_role(self) -> None:
        ports = {"BRINGUPD_PORT": "20007", "BRINGUPD_PORT_METRICS": "20008"}
        instance = {
            "BRINGUPD_INSTANCE_RANK": "1",
            "BRINGUPD_INSTANCE_SIZE": "4",
            "BRINGUPD_INSTANCE_ADDRESS": "10.0.0.1",
            "BRINGUPD_INSTANCE_PORT": "20000",
            "BRINGUPD_INSTANCE_PORT_METRICS": "20001",
        }
        self.assertEqual(
            bringupd.Role.from_environment({**ROLE, **ports, **instance, "BRINGUPD_GENERATION": "3"}),
            bringupd.Role(
                "judge", 2, 8, 1, 4, "10.0.0.1", 20000, {"metrics": 20001}, 3, 20007, {"metrics": 20008}
            ),
        )
        alone = bringupd.Role.from_environment(ROLE)
        self.assertEqual(
            (alone.instance_rank, alone.instance_size, alone.generation, alone.port, alone.ports),
            (0, 1, 0, None, {}),
        )

    def test_missing_and_wrong_values(self) -> None:
        for read, environment, wanted in (
            (bringupd.Run.from_environment, {}, "cannot find BRINGUPD_RUN: "),
            (bringupd.Rank.from_environment, DRIVER, "cannot find BRINGUPD_RANK: "),
            (bringupd.Role.from_environment, RANK, "cannot find BRINGUPD_ROLE: "),
            (
                bringupd.Rank.from_environment,
                {**RANK, "BRINGUPD_RANK": "-1"},
                "cannot use BRINGUPD_RANK=-1: ",
            ),
        ):
            with self.subTest(wanted), self.assertRaises(bringupd.Error) as caught:
                read(environment)
            self.assertTrue(str(caught.exception).startswith(wanted), caught.exception)


class TestOutsideOfWorld(unittest.TestCase):
    def test_says_how_to_start(self) -> None:
        with self.assertRaisesRegex(bringupd.NotInRunError, "--ranks-per-node=N"):
            bringupd.Rank.from_environment({})


class TestEndpoints(unittest.TestCase):
    def test_planned(self) -> None:
        environment = {
            "BRINGUPD_ROLE_REWARD_MODEL_ENDPOINTS": "n1:20000,n2:20000",
            "BRINGUPD_ROLE_REWARD_MODEL_KEY": "k",
        }
        wanted = (Endpoint("n1", 20000), Endpoint("n2", 20000))
        self.assertEqual(bringupd.planned_endpoints("reward-model", environment), wanted)
        self.assertEqual(bringupd.role_key("reward-model", environment), "k")
        with self.assertRaises(bringupd.NotInRunError):
            bringupd.planned_endpoints("judge", environment)

    def test_ready(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "judge")
            environment = {"BRINGUPD_ENDPOINTS_FILE_JUDGE": path}
            self.assertEqual(bringupd.ready_endpoints("judge", environment), ())
            for text, wanted in (("", ()), ("n1:1\n[::1]:2\n", (Endpoint("n1", 1), Endpoint("::1", 2)))):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                self.assertEqual(bringupd.ready_endpoints("judge", environment), wanted)

    def test_text(self) -> None:
        for text in ("n1:20000", "[fe80::1]:20000"):
            self.assertEqual(str(Endpoint.parse(text)), text)
        for text in ("n1", "n1:", ":1", "fe80::1:20000", "n1:port"):
            with self.subTest(text), self.assertRaises(bringupd.Error):
                Endpoint.parse(text)
