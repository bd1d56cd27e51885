# A cluster on Nomad: bookies on host volumes, auto-recovery, brokers, a proxy. The metadata service is not part of it.
#
#   nomad job run -var metadata=zk://zk1:2181,zk2:2181,zk3:2181/ledgers -var image=… magnetar.nomad.hcl
#
# Secrets are Nomad variables at nomad/jobs/magnetar: token_secret_key (base 64), proxy_token. Without TLS, as here, let
# only trusted machines reach these ports; docs/deployment.md.

variable "metadata" {
  type        = string
  description = "URL of the metadata service."
}

variable "image" {
  type    = string
  default = "localhost/magnetar:0.1.0"
}

variable "datacenters" {
  type    = list(string)
  default = ["*"]
}

job "magnetar" {
  datacenters = var.datacenters
  type        = "service"

  # One at a time, and only while the last one is healthy.
  update {
    max_parallel     = 1
    health_check     = "checks"
    min_healthy_time = "20s"
    healthy_deadline = "10m"
    auto_revert      = true
  }

  group "bookie" {
    count = 4

    # Each on a machine of its own, which has the volume `magnetar-bookie` in its client's configuration.
    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    volume "data" {
      type      = "host"
      source    = "magnetar-bookie"
      read_only = false
    }

    network {
      mode = "host"
      port "bookie" { static = 3181 }
      port "http" { static = 8000 }
    }

    service {
      name     = "magnetar-bookie"
      port     = "http"
      provider = "nomad"
      check {
        type     = "http"
        path     = "/api/v1/bookie/is_ready"
        interval = "10s"
        timeout  = "5s"
      }
    }

    # Makes the metadata of a new cluster; what is there already stays.
    task "init" {
      driver = "docker"
      lifecycle {
        hook    = "prestart"
        sidecar = false
      }
      config {
        image           = var.image
        network_mode    = "host"
        readonly_rootfs = true
        cap_drop        = ["all"]
        args            = ["cluster", "init", "--metadata", var.metadata]
      }
      resources {
        cpu    = 100
        memory = 256
      }
    }

    task "bookie" {
      driver       = "docker"
      kill_timeout = "90s"
      user         = "10001:10001"
      volume_mount {
        volume      = "data"
        destination = "/var/lib/magnetar"
      }
      config {
        image           = var.image
        network_mode    = "host"
        readonly_rootfs = true
        cap_drop        = ["all"]
        mount {
          type   = "tmpfs"
          target = "/tmp"
        }
        args = [
          "bookie",
          "--metadata", var.metadata,
          "--data", "/var/lib/magnetar/bookie",
          "--host", "0.0.0.0",
          "--port", "3181",
          "--advertised-address", "${attr.unique.network.ip-address}",
          "--http-host", "${attr.unique.network.ip-address}",
          "--http-port", "8000",
          "--log-json",
        ]
      }
      resources {
        cpu        = 1000
        memory     = 512
        memory_max = 1024
      }
    }
  }

  group "autorecovery" {
    count = 2

    network {
      mode = "host"
      port "http" {}
    }

    service {
      name     = "magnetar-autorecovery"
      port     = "http"
      provider = "nomad"
      check {
        type     = "http"
        path     = "/heartbeat"
        interval = "10s"
        timeout  = "5s"
      }
    }

    task "autorecovery" {
      driver       = "docker"
      kill_timeout = "60s"
      user         = "10001:10001"
      config {
        image           = var.image
        network_mode    = "host"
        readonly_rootfs = true
        cap_drop        = ["all"]
        args = [
          "autorecovery", "run",
          "--metadata", var.metadata,
          "--id", "${NOMAD_ALLOC_ID}",
          "--http-host", "${attr.unique.network.ip-address}",
          "--http-port", "${NOMAD_PORT_http}",
          "--log-json",
        ]
      }
      resources {
        cpu        = 200
        memory     = 256
        memory_max = 512
      }
    }
  }

  group "broker" {
    count = 3

    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    network {
      mode = "host"
      port "pulsar" { static = 6650 }
      port "http" { static = 8080 }
    }

    service {
      name     = "magnetar-broker"
      port     = "http"
      provider = "nomad"
      check {
        type     = "http"
        path     = "/admin/v2/brokers/ready"
        interval = "10s"
        timeout  = "5s"
      }
    }

    task "broker" {
      driver       = "docker"
      kill_timeout = "90s"
      user         = "10001:10001"
      template {
        data        = "{{ with nomadVar \"nomad/jobs/magnetar\" }}{{ .token_secret_key | base64Decode }}{{ end }}"
        destination = "secrets/token-secret.key"
        # The file is read again when it changes.
        change_mode   = "signal"
        change_signal = "SIGHUP"
        perms         = "0440"
        uid           = 10001
        gid           = 10001
      }
      env {
        MAGNETAR_HOST                 = "0.0.0.0"
        MAGNETAR_ADVERTISED_ADDRESS   = "${attr.unique.network.ip-address}"
        MAGNETAR_LOG_JSON             = "true"
        MAGNETAR_AUTHENTICATION       = "token"
        MAGNETAR_TOKEN_SECRET_KEY     = "/secrets/token-secret.key"
        MAGNETAR_SUPERUSER_ROLES      = "admin"
        MAGNETAR_PROXY_ROLES          = "proxy"
        MAGNETAR_LEDGER_ENSEMBLE_SIZE = "3"
        MAGNETAR_LEDGER_WRITE_QUORUM  = "3"
        MAGNETAR_LEDGER_ACK_QUORUM    = "2"
      }
      config {
        image           = var.image
        network_mode    = "host"
        readonly_rootfs = true
        cap_drop        = ["all"]
        mount {
          type   = "tmpfs"
          target = "/tmp"
        }
        args = ["broker", "--metadata", var.metadata]
      }
      resources {
        cpu        = 1000
        memory     = 512
        memory_max = 1024
      }
    }
  }

  group "proxy" {
    count = 2

    network {
      mode = "host"
      port "pulsar" {}
      port "http" {}
    }

    service {
      name     = "magnetar-proxy"
      port     = "http"
      provider = "nomad"
      check {
        type     = "http"
        path     = "/status.html"
        interval = "10s"
        timeout  = "5s"
      }
    }

    service {
      name     = "magnetar"
      port     = "pulsar"
      provider = "nomad"
    }

    task "proxy" {
      driver       = "docker"
      kill_timeout = "60s"
      user         = "10001:10001"
      template {
        data        = "{{ with nomadVar \"nomad/jobs/magnetar\" }}{{ .token_secret_key | base64Decode }}{{ end }}"
        destination = "secrets/token-secret.key"
        change_mode = "noop"
        perms       = "0440"
        uid         = 10001
        gid         = 10001
      }
      template {
        data        = "{{ with nomadVar \"nomad/jobs/magnetar\" }}{{ .proxy_token }}{{ end }}"
        destination = "secrets/proxy.token"
        change_mode = "restart"
        perms       = "0440"
        uid         = 10001
        gid         = 10001
      }
      env {
        MAGNETAR_HOST                = "0.0.0.0"
        MAGNETAR_ADVERTISED_ADDRESS  = "${attr.unique.network.ip-address}"
        MAGNETAR_LOG_JSON            = "true"
        MAGNETAR_AUTHENTICATION      = "token"
        MAGNETAR_TOKEN_SECRET_KEY    = "/secrets/token-secret.key"
        MAGNETAR_SUPERUSER_ROLES     = "admin"
        MAGNETAR_BROKER_TOKEN        = "file:///secrets/proxy.token"
        MAGNETAR_FORWARD_CREDENTIALS = "true"
      }
      config {
        image           = var.image
        network_mode    = "host"
        readonly_rootfs = true
        cap_drop        = ["all"]
        args = [
          "proxy",
          "--metadata", var.metadata,
          "--port", "${NOMAD_PORT_pulsar}",
          "--http-port", "${NOMAD_PORT_http}",
        ]
      }
      resources {
        cpu        = 500
        memory     = 256
        memory_max = 512
      }
    }
  }
}
