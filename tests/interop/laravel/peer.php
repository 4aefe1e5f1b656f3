<?php
// Laravel's own queue on Redis, told what to do: a line of JSON comes in, a line of JSON goes out.
// php peer.php URL PREFIX; the prefix is the connection's, as in a project's config/database.php.

error_reporting(E_ALL & ~E_DEPRECATED);
ini_set('display_errors', 'stderr');

require_once 'Illuminate/Queue/autoload.php';
require_once 'Illuminate/Redis/autoload.php';

use Illuminate\Container\Container;
use Illuminate\Queue\Jobs\RedisJob;
use Illuminate\Queue\RedisQueue;
use Illuminate\Redis\RedisManager;

class Peer extends RedisQueue
{
    private $jobs = [];

    // Laravel's own, which takes a payload as it is; only workers' libraries can call it.
    public function laterRaw($delay, $payload, $queue = null)
    {
        return parent::laterRaw($delay, $payload, $queue);
    }

    // The job object that a worker gets, kept so that it can be settled later.
    public function take($queue)
    {
        $job = $this->pop($queue);

        return $job ? $this->keep($job) : null;
    }

    // The same for a message that somebody else reserved.
    public function adopt($queue, $body, $reserved)
    {
        return $this->keep(new RedisJob($this->container, $this, $body, $reserved, 'redis', $queue));
    }

    public function settle($number, $how, ...$arguments)
    {
        return $this->jobs[$number]->$how(...$arguments);
    }

    private function keep($job)
    {
        $this->jobs[] = $job;

        return [count($this->jobs) - 1, $job->getRawBody(), $job->getReservedJob(), $job->attempts()];
    }
}

[, $url, $prefix] = $argv;
$container = new Container;
$redis = new RedisManager($container, 'phpredis', ['default' => ['url' => $url, 'prefix' => $prefix]]);
$peer = new Peer($redis);
$peer->setContainer($container);

while (($line = fgets(STDIN)) !== false) {
    [$verb, $arguments] = json_decode($line, true);
    echo json_encode($peer->$verb(...$arguments), JSON_THROW_ON_ERROR), "\n";
}
